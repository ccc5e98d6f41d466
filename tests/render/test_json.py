"""The JSON report: the contract other programs rely on."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit import __version__
from perfaudit.findings import Edit, Expected, Finding, Fix, Location, Saving, Span
from perfaudit.render.json import render
from perfaudit.report import Report, Skipped
from perfaudit.static.scan import scan

PARSER = f" (read as Python {sys.version_info.major}.{sys.version_info.minor}, with which perfaudit runs)"

Project = Callable[..., Path]

# Keys of version 1. A key may be added here; one that goes away or gets another name raises the version.
REPORT = {
    "schema",
    "tool",
    "command",
    "target",
    "own_loop",
    "interrupted",
    "environment",
    "calibration",
    "files",
    "tests_left_out",
    "hints_left_out",
    "rules_left_out",
    "baseline",
    "unused_suppressions",
    "findings",
    "trials",
    "comparisons",
    "winners",
    "ladder",
    "gate",
    "run",
    "trace",
    "doctor",
    "kept_in",
    "not_applicable",
    "skipped",
    "notes",
}
FINDING = {
    "rule",
    "name",
    "severity",
    "path",
    "cell",
    "line",
    "column",
    "end_line",
    "end_column",
    "message",
    "note",
    "fingerprint",
    "fingerprints",
    "saving",
    "fix",
    "also",
    "parts",
    "places",
}
SAVING = {"basis", "low", "high", "seconds_per_step", "source", "clock", "conditions", "expected"}
FIX = {"safety", "changes", "title", "diff", "before", "after", "encoding", "edits"}
EDIT = {"start", "end", "text", "cell", "line", "column", "end_line", "end_column"}


def test_keys(project: Project) -> None:
    project(
        **{
            "pkg/train.py": "import torch\ntorch.autograd.set_detect_anomaly(True)\n",
            "pkg/bad.py": "def torch(:\n",
        }
    )
    report = json.loads(render(scan(["."])))
    assert set(report) == REPORT
    assert report["schema"] == "perfaudit.report/1"
    assert report["tool"] == {"name": "perfaudit", "version": __version__}
    (finding,) = report["findings"]
    assert set(finding) == FINDING
    assert set(finding["saving"]) == SAVING
    assert set(finding["fix"]) == FIX
    assert all(set(edit) == EDIT for edit in finding["fix"]["edits"])
    assert report["skipped"] == [
        {
            "path": "pkg/bad.py",
            "reason": f"does not parse at line 1: invalid syntax{PARSER}",
        }
    ]


def test_a_measured_saving_says_what_was_known() -> None:
    saving = Saving("measured", 0.1, 0.2, 0.004, expected=Expected("benchmarked", 0.3, 0.4))
    report = Report("scan", (Finding("PA000", "slow-thing", "warning", "slow", saving=saving),))
    (finding,) = json.loads(render(report))["findings"]
    assert finding["saving"]["basis"] == "measured"
    assert finding["saving"]["expected"] == {"basis": "benchmarked", "low": 0.3, "high": 0.4}


def test_a_whole_report() -> None:
    finding = Finding(
        "PA000",
        "slow-thing",
        "warning",
        "`größer` is slow",
        Location("pkg/a.py", 3, 5, 4, 2),
        Saving("documented", 0.0, 0.5, source="a paper"),
        Fix(
            "mend it",
            "unsafe",
            ("rng",),
            (Edit(Span(9, 12), "new", Location("pkg/a.py", 3, 5, 3, 8)),),
            "--- a\n",
            "0" * 64,
        ),
        "0123",
        places=(Location("pkg/a.py", 3, 5, 4, 2), Location("pkg/a.py", 7, 1, 7, 2)),
    )
    nowhere = Finding("PA001", "other", "info", "slow")
    report = Report("scan", (finding, nowhere), (Skipped("b.py", "binary"),), 1)
    assert json.loads(render(report)) == {
        "schema": "perfaudit.report/1",
        "tool": {"name": "perfaudit", "version": __version__},
        "command": "scan",
        "target": None,
        "own_loop": None,
        "interrupted": False,
        "environment": None,
        "calibration": None,
        "files": 1,
        "findings": [
            {
                "rule": "PA000",
                "name": "slow-thing",
                "severity": "warning",
                "path": "pkg/a.py",
                "cell": None,
                "line": 3,
                "column": 5,
                "end_line": 4,
                "end_column": 2,
                "message": "`größer` is slow",
                "note": "",
                "fingerprint": "0123",
                "fingerprints": ["0123"],
                "saving": {
                    "basis": "documented",
                    "low": 0.0,
                    "high": 0.5,
                    "seconds_per_step": None,
                    "source": "a paper",
                    "clock": "wall",
                    "conditions": "",
                    "expected": None,
                },
                "fix": {
                    "safety": "unsafe",
                    "changes": ["rng"],
                    "title": "mend it",
                    "diff": "--- a\n",
                    "before": "0" * 64,
                    "after": None,
                    "encoding": "utf-8",
                    "edits": [
                        {
                            "start": 9,
                            "end": 12,
                            "text": "new",
                            "cell": None,
                            "line": 3,
                            "column": 5,
                            "end_line": 3,
                            "end_column": 8,
                        }
                    ],
                },
                "also": [],
                "parts": [],
                "places": [
                    {"cell": None, "line": 3, "column": 5},
                    {"cell": None, "line": 7, "column": 1},
                ],
            },
            {
                "rule": "PA001",
                "name": "other",
                "severity": "info",
                "path": None,
                "cell": None,
                "line": None,
                "column": None,
                "end_line": None,
                "end_column": None,
                "message": "slow",
                "note": "",
                "fingerprint": "",
                "fingerprints": [""],
                "saving": None,
                "fix": None,
                "also": [],
                "parts": [],
                "places": [],
            },
        ],
        "trials": [],
        "comparisons": [],
        "winners": [],
        "ladder": None,
        "not_applicable": [],
        "skipped": [{"path": "b.py", "reason": "binary"}],
        "notes": [],
        "tests_left_out": 0,
        "hints_left_out": 0,
        "rules_left_out": [],
        "baseline": {"known": 0, "gone": 0},
        "unused_suppressions": [],
        "gate": None,
        "run": None,
        "trace": None,
        "kept_in": None,
        "doctor": None,
    }


CALL = "torch.autograd.set_detect_anomaly(True)"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"import torch\n{CALL}\n", (2, 1, 2, 40)),
        (f"import torch\nx = 'größer, 训练 𝒳'; {CALL}\n", (2, 21, 2, 60)),
        ("import torch\r\n\r\ntorch.autograd.set_detect_anomaly(\r\n    True\r\n)\r\n", (3, 1, 5, 2)),
        (f"\ufeffimport torch; {CALL}", (1, 15, 1, 54)),
    ],
)
def test_places_count_characters_from_one(project: Project, text: str, place: tuple[int, ...]) -> None:
    (project() / "a.py").write_bytes(text.encode())
    (finding,) = json.loads(render(scan(["a.py"])))["findings"]
    assert tuple(finding[key] for key in ("line", "column", "end_line", "end_column")) == place


def test_paths_are_relative(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**{"a/b c/d.py": f"import torch\n{CALL}\n", "e.py": f"import torch\n{CALL}\n"})
    monkeypatch.chdir(folder / "a")
    found = json.loads(render(scan([str(folder / "a"), "../e.py"])))["findings"]
    assert [finding["path"] for finding in found] == ["b c/d.py", "../e.py"]
    assert found[1]["fix"]["diff"].startswith("--- a/../e.py\n")


def test_every_stream_takes_it() -> None:
    text = render(Report("scan", notes=("größer \udcff",)))
    assert text.isascii()
    assert text.endswith("}\n")
    assert json.loads(text)["notes"] == ["größer \udcff"]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("format_", ["json", "sarif"])
def test_what_is_no_number_in_json_is_never_written(format_: str, number: float) -> None:
    """`NaN` and `Infinity` are read by Python alone; a report that holds one is a mistake of ours, and is not handed out."""
    report = Report("scan", (Finding("PA000", "slow", "info", "slow", saving=Saving("measured", number, number)),))
    module = importlib.import_module(f"perfaudit.render.{format_}")
    with pytest.raises(ValueError, match="not JSON compliant"):
        module.render(report)
