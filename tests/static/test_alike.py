"""Findings that say the same of one file are one finding with its places; what differs stays apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from perfaudit.findings import Finding, Saving
from perfaudit.static.alike import merge_alike
from perfaudit.static.scan import Options, scan

pytestmark = pytest.mark.usefixtures("in_this_process")

Run = Callable[..., Done]

TWICE = "import torch\ntorch.autograd.set_detect_anomaly(True)\n\n\ntorch.autograd.set_detect_anomaly(True)\n"
FIXED = TWICE.replace("True", "False")


def found(text: str, path: str = "a.py") -> tuple[Finding, ...]:
    Path(path).write_text(text)
    return scan([path], Options(frozenset({"PA501"}))).findings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_one_finding_with_places_and_one_patch() -> None:
    findings = found(TWICE)
    (one,) = merge_alike(findings)
    assert [place.line for place in one.places] == [2, 5]
    assert one.message == f"{findings[0].message}; the same in 1 more place of this file"
    assert (one.location, one.fingerprint) == (findings[0].location, findings[0].fingerprint)
    assert one.fix is not None and findings[0].fix is not None and findings[1].fix is not None
    assert one.fix.edits == findings[0].fix.edits + findings[1].fix.edits
    assert [line for line in one.fix.diff.splitlines() if line[:1] in "+-"] == [
        "--- a/a.py", "+++ b/a.py",
        "-torch.autograd.set_detect_anomaly(True)", "+torch.autograd.set_detect_anomaly(False)",
        "-torch.autograd.set_detect_anomaly(True)", "+torch.autograd.set_detect_anomaly(False)",
    ]  # fmt: skip


@pytest.mark.parametrize("changed", ["severity", "note", "message", "hot"])
def test_what_differs_stays_apart(changed: str) -> None:
    first, second = found(TWICE)
    value: object = {"severity": "hint", "hot": True}.get(changed, "other")
    assert merge_alike([first, second.with_(**{changed: value})]) == (first, second.with_(**{changed: value}))


def test_other_files_and_what_was_measured_stay_apart() -> None:
    first, second = found(TWICE)
    measured = [f.with_(saving=Saving("screened", 0.1, 0.2)) for f in (first, second)]
    assert merge_alike(measured) == tuple(measured)
    (there,) = found("import torch\ntorch.autograd.set_detect_anomaly(True)\n", "b.py")
    assert merge_alike([first, there]) == (first, there)


def test_a_file_that_has_changed_keeps_them_apart() -> None:
    findings = found(TWICE)
    Path("a.py").write_text("# new\n" + TWICE)
    assert merge_alike(findings) == findings
    Path("a.py").unlink()
    assert merge_alike(findings) == findings


def test_advice_needs_no_file() -> None:
    Path("a.py").write_text("import torch\na = torch.nn.DataParallel(x)\nb = torch.nn.DataParallel(x)\n")
    findings = scan(["a.py"], Options(frozenset({"PA701"}))).findings
    Path("a.py").unlink()
    assert [len(finding.places) for finding in merge_alike(findings)] == [2]


BUILT = """import torch

def forward(x):
    a = torch.zeros(3).cuda()
    b = torch.ones(4, 5).cuda()
    return x + a + b
"""


def test_tensors_built_on_the_host_are_alike_whatever_they_hold() -> None:
    Path("a.py").write_text(BUILT)
    findings = scan(["a.py"], Options(frozenset({"PA105"}))).findings
    (one,) = merge_alike(findings)
    assert [place.line for place in one.places] == [4, 5]
    assert one.message == f"{findings[0].message}; the same goes for others in 1 more place of this file"
    assert one.fix is not None
    assert one.fix.diff.count("+    ") == 2


def test_optimizers_that_are_not_fused_are_alike_whatever_their_class() -> None:
    Path("a.py").write_text(
        "import torch\na = torch.optim.SGD(x.parameters(), 0.1)\nb = torch.optim.Adam(y.parameters())\n"
    )
    findings = scan(["a.py"], Options(frozenset({"PA402"}))).findings
    (one,) = merge_alike(findings)
    assert [place.line for place in one.places] == [2, 3]
    assert one.message == f"{findings[0].message}; the same goes for others in 1 more place of this file"
    assert one.fix is not None
    assert one.fix.diff.count("fused=True") == 2


def test_of_other_rules_the_code_that_is_shown_counts() -> None:
    first, second = (f.with_(message=m) for f, m in zip(found(TWICE), ("`a` is slow", "`b` is slow"), strict=True))
    assert merge_alike([first, second]) == (first, second)


def test_a_notebook() -> None:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": [line]} for line in TWICE.split("\n\n\n")]
    Path("n.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}, indent=1))
    (one,) = merge_alike(scan(["n.ipynb"], Options(frozenset({"PA501"}))).findings)
    assert [(place.cell, place.line) for place in one.places] == [(1, 2), (2, 1)]
    assert one.fix is not None
    assert one.fix.diff.count("set_detect_anomaly(False)") == 2


@pytest.mark.parametrize(("format", "lines"), [("text", 1), ("json", 1), ("sarif", 1), ("concise", 1), ("github", 2)])
def test_formats_by_place_say_each_and_others_say_it_once(perfaudit: Run, format: str, lines: int) -> None:
    Path("a.py").write_text(TWICE)
    done = perfaudit("scan", "a.py", "--format", format)
    message = "keeps a stack trace of every forward operation"
    assert " ".join(done.out.split()).count(message) == lines
    assert done.code == 1


def test_a_baseline_and_fixes_go_by_place(perfaudit: Run) -> None:
    once = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
    Path("a.py").write_text(once)
    perfaudit("scan", "a.py", "--baseline", "known.json", "--update-baseline")
    Path("a.py").write_text(TWICE)
    done = perfaudit("scan", "a.py", "--baseline", "known.json", "--format", "json")
    assert [(f["line"], f["places"]) for f in json.loads(done.out)["findings"]] == [(5, [])]
    assert "a.py: 2 fixed" in perfaudit("scan", "a.py", "--fix").err
    assert Path("a.py").read_text() == FIXED


def test_a_saved_report_is_applied_in_all_places(perfaudit: Run) -> None:
    Path("a.py").write_text(TWICE)
    perfaudit("scan", "a.py", "--format", "json", "--output", "report.json")
    (finding,) = json.loads(Path("report.json").read_text())["findings"]
    assert [place["line"] for place in finding["places"]] == [2, 5]
    assert perfaudit("apply", "report.json").code == 0
    assert Path("a.py").read_text() == FIXED
