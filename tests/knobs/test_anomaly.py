"""Anomaly detection left on: seen in the process or in a finding, and switched off by the finding's own fix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from surveys import found, survey_of

from perfaudit.knobs import Bench, Probe, Survey, anomaly
from perfaudit.knobs._code import Code
from perfaudit.static.scan import scan
from perfaudit.target.flags import flags

KNOB = anomaly.KNOB


def survey(on: bool = False, *places: str) -> Survey:
    return survey_of((found("PA501", place) for place in places), flags={"anomaly": on})


@pytest.mark.parametrize(
    ("given", "on", "reason"),
    [
        (survey(True), True, ""),
        (survey(False, "train.py:3"), True, ""),  # in the user's own loop
        (survey(), False, "autograd's anomaly detection is off"),
    ],
)
def test_where_it_is_on(given: Survey, on: bool, reason: str) -> None:
    assert (KNOB.current(given), KNOB.not_applicable(given)) == ({"anomaly": on}, reason)


def test_off_is_tried_and_both_are_applied() -> None:
    bench = Bench(survey(True), 2, 1, lambda s: Probe(s), lambda *a, **k: {})
    assert KNOB.candidates(bench) == [{"anomaly": False}]
    before = flags()
    for value in (True, False):
        with KNOB.setup({"anomaly": value}).applied(None):
            assert flags()["anomaly"] is value
    assert flags() == before


STEP = "def training_step(model, batch):\n    return model(batch).sum()\n"
TRAINS = """

def train(model):
    for batch in loader:
        training_step(model, batch).backward()


if __name__ == "__main__":
    train(build_model())
"""
ON_IMPORT = f"import torch\n\ntorch.autograd.set_detect_anomaly(True)  # slow\n\n\n{STEP}"
IN_STEP = """\
import torch


def training_step(model, batch):
    with torch.autograd.set_detect_anomaly(True):
        return model(batch).sum()
"""
IN_LOOP = f"{STEP}\n\ndef main():\n    with torch.autograd.set_detect_anomaly(True):\n        train()\n"


@pytest.mark.parametrize(
    ("text", "on", "patched"),
    [
        (ON_IMPORT + TRAINS, True, True),
        (IN_STEP + TRAINS, False, True),
        (ON_IMPORT, True, False),  # nobody sees who trains, and may wait for the error: advice only
        (f"import torch\n\n\n{IN_LOOP}{TRAINS}", False, False),  # a loop of theirs, which is not run
    ],
)
def test_the_patch_is_the_fix_of_lines_that_run(
    text: str, on: bool, patched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    findings = tuple(scan(["train.py"]).findings)
    assert [f.rule for f in findings if f.rule == "PA501"] == ["PA501"]
    patch = KNOB.patch(Code("train.py", replace(survey(on), findings=findings)), {"anomaly": False})
    assert (patch and patch.after) == (text.replace("anomaly(True)", "anomaly(False)") if patched else None)
    assert patch is None or patch.changes == ()


def test_patched_source_holds_when_the_process_has_it_off() -> None:
    assert KNOB.holds(survey(False, "train.py:3"), {"anomaly": False})
    assert not KNOB.holds(survey(True), {"anomaly": False})


def test_words() -> None:
    assert KNOB.words({"anomaly": False}, survey(True, "train.py:3")) == (
        "switch anomaly detection off (train.py:3:1); a NaN then shows in the loss"
    )
