"""Sums of losses that wait for a number or keep their graph: when they matter, and the patch."""

from __future__ import annotations

from pathlib import Path

import pytest
from surveys import found, survey_of

from perfaudit.knobs import Survey
from perfaudit.knobs._code import Code
from perfaudit.knobs.host_syncs import KNOB
from perfaudit.measure.facts import Script
from perfaudit.static.scan import scan

TENSORS = {"sums": "tensors"}
LOOP = """\
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total, whole = 0.0, 0.0
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += {total}
    whole += {whole}
print({after}whole.item())
"""
AS_WRITTEN = LOOP.format(total="loss.item()", whole="loss", after="total, ")
READ = "loss.item()"


def survey(device: str, *rules: str, by_hand: bool = False) -> Survey:
    findings = [found(rule, f"train.py:{n}", by_hand) for n, rule in enumerate(rules, 1)]
    return survey_of(findings, device={"type": device}, script=Script(), factories={})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey("cuda", "PA601"), ""),
        (survey("cuda", "PA603"), ""),
        (survey("cpu", "PA603", "PA601"), ""),
        (survey("cpu", "PA601"), "on the CPU reading a number waits for nothing"),
        (survey("cuda"), "no loss that is read or summed with its graph at every step was found in train.py"),
        (
            survey("cuda", "PA601", by_hand=True),
            "PA601 at train.py:1 must be changed by hand, so there is nothing to measure it against",
        ),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


@pytest.mark.parametrize(
    ("device", "lines"),
    [
        ("cuda", ["    total += loss.detach().float()", "    whole += loss.detach()", "total = float(total)"]),
        ("cpu", ["    total += loss.item()", "    whole += loss.detach()"]),  # what it reads is there
    ],
)
def test_the_patch_is_that_of_the_findings_that_cost_time_there(
    device: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(AS_WRITTEN)
    findings = scan(["train.py"]).findings
    assert {"PA601", "PA603"} <= {finding.rule for finding in findings}
    given = survey_of(findings, device={"type": device}, script=Script(), factories={})
    patch = KNOB.patch(Code("train.py", given), TENSORS)
    assert patch is not None
    assert [line for line in patch.after.splitlines() if line.lstrip().startswith(("total", "whole"))][1:] == lines
    assert KNOB.patch(Code("train.py", given), KNOB.current(given)) is None
    places = [str(finding.location) for finding in findings if finding.rule in ("PA601", "PA603")]
    told = places if device == "cuda" else places[1:]
    assert KNOB.words(TENSORS, given) == f"keep sums of losses as tensors without a graph, in {', '.join(told)}"
