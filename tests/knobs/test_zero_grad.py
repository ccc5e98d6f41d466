"""Zeroed gradients: the finding is the user's setting, and the words name its lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from surveys import found, survey_of

from perfaudit.knobs import Bench, Probe, Refused, Survey, Told, zero_grad
from perfaudit.knobs._code import Code
from perfaudit.measure.facts import Script
from perfaudit.static.scan import Options, scan

KNOB = zero_grad.KNOB


def survey(*places: str, by_hand: bool = False) -> Survey:
    return survey_of(found("PA401", place, by_hand) for place in places)


@pytest.mark.parametrize(
    ("given", "now", "reason"),
    [
        (survey("train.py:3"), False, ""),
        (survey(), True, "gradients are dropped already (the default of zero_grad)"),
        (survey_of(), True, "gradients are dropped already (the default of zero_grad)"),  # no scan was made
    ],
)
def test_the_finding_is_the_current_setting(given: Survey, now: bool, reason: str) -> None:
    assert KNOB.current(given) == {"set_to_none": now}
    assert KNOB.not_applicable(given) == reason


def test_dropping_is_tried_and_both_are_applied_to_our_step() -> None:
    bench = Bench(survey("train.py:3"), 2, 1, lambda s: Probe(s), lambda *a, **k: {})
    assert KNOB.candidates(bench) == [{"set_to_none": True}]
    assert KNOB.base_is_applied
    for value in (False, True):
        training = SimpleNamespace(set_to_none=None, is_script=False)
        with KNOB.setup({"set_to_none": value}).applied(training):
            assert training.set_to_none is value


def test_the_words_name_the_lines() -> None:
    given = survey("a.py:3:5", "a.py:9:5", "b.py:1:1")
    assert KNOB.words({"set_to_none": True}, given) == (
        "drop gradients instead of filling them with zeros, in a.py:3:5, a.py:9:5, b.py:1:1"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            survey("a.py:3:5", "a.py:9:5", "b.py:1:1"),
            "the line stands in a loop that perfaudit does not run: "
            "`perfaudit scan a.py b.py --select PA401 --fix` writes it",
        ),
        (survey("a.py:3", by_hand=True), ""),
    ],
)
def test_who_writes_the_line_is_said(given: Survey, said: str) -> None:
    assert KNOB.handed_over({"set_to_none": True}, given) == said


def test_a_line_that_is_not_run_is_not_raced_as_a_patch() -> None:
    assert KNOB.patch(Code("train.py", survey("train.py:3")), {"set_to_none": True}) is None


def test_a_scripts_own_line_is_patched_and_raced_as_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import torch\nfor x in data:\n    optimizer.zero_grad(set_to_none=False)\n"
    Path("train.py").write_text(text)
    given = survey_of(scan(["train.py"], Options(processes=1)).findings, script=Script())
    bench, dropped = Bench(given, 2, 1, lambda s: Probe(s), lambda *a, **k: {}), {"set_to_none": True}
    assert (KNOB.why_not(given), KNOB.candidates(bench)) == ("", [dropped])
    assert (KNOB.way_on(given, dropped), KNOB.phases_on(given, dropped), KNOB.share(given)) == ("code", (), 1.0)
    patch = KNOB.patch(Code("train.py", given), dropped)
    assert patch is not None and patch.after == text.replace("set_to_none=False", "")
    assert KNOB.handed_over(dropped, given) == ""
    with pytest.raises(Refused, match=r"no patch is known for train\.py:3"):
        KNOB.candidates(replace(bench, survey=survey_of([found("PA401", "train.py:3", True)], script=Script())))
    script = SimpleNamespace(is_script=True)
    with KNOB.setup(dropped).applied(script):
        assert vars(script) == {"is_script": True}  # its own line says so


def test_what_else_changes_is_said() -> None:
    assert "momentum" in KNOB.remarks(Told(survey(), (), (), {}, {"set_to_none": True}))[0]
    assert KNOB.remarks(Told(survey(), (), (), {}, None)) == []
