"""The order of findings."""

from __future__ import annotations

import itertools

import pytest

from perfaudit import rank
from perfaudit.findings import Basis, Finding, Location, Saving, Severity


def finding(
    name: str,
    severity: Severity = "warning",
    saving: Saving | None = None,
    hot: bool = False,
    line: int = 1,
    path: str = "a.py",
) -> Finding:
    return Finding("PA000", name, severity, "slow", Location(path, line, 1, line, 2), saving, hot=hot)


def saving(basis: Basis, low: float, high: float) -> Saving:
    return Saving(basis, low, high)


EXPECTED = [
    finding("pays most", "info", saving("measured", 0.2, 0.3)),
    finding("pays by its lower bound", "info", saving("measured", 0.1, 0.9)),
    finding("pays little", "error", saving("measured", 0.001, 0.002)),
    finding("screened most", "info", saving("screened", 0.3, 0.4)),
    finding("profiled", "info", saving("profiled", 0.1, 0.1)),
    finding("error", "error"),
    finding("benchmarked", saving=saving("benchmarked", 0.1, 0.2)),
    finding("benchmarked, on every step", saving=saving("benchmarked", 0.05, 0.4), hot=True),
    finding("warning on every step", hot=True),
    finding("on every step, documented", saving=saving("documented", 0.5, 0.9), hot=True, line=2),
    finding("first line", line=1),
    finding("second line, documented", saving=saving("documented", 0.5, 0.5), line=2),
    finding("third line, documented higher", saving=saving("documented", 0.0, 0.6), line=3),
    finding("other file", path="b.py"),
    finding("info, benchmarked", "info", saving("benchmarked", 0.01, 0.1)),
    finding("info", "info", saving("documented", 0.0, 0.9), hot=True),
    finding("info, shown to save nothing", "info", saving("benchmarked", -0.1, 0.1)),
    finding("nothing shown", "error", saving("measured", 0.0, 0.1)),
    finding("may slow down", "error", saving("measured", -0.1, 0.1)),
    finding("screened to cost", "error", saving("screened", -0.3, -0.1)),
    finding("slows down", "error", saving("measured", -0.4, -0.2)),
]


def test_order() -> None:
    assert [f.name for f in rank.sort_findings(EXPECTED[::-1])] == [f.name for f in EXPECTED]


def test_any_two_can_be_compared() -> None:
    nowhere = finding("no source line").with_(location=None)
    for pair in itertools.combinations([*EXPECTED, nowhere], 2):
        assert rank.sort_findings(pair) == rank.sort_findings(pair[::-1])


@pytest.mark.parametrize(
    ("basis", "low", "high", "group"),
    [
        ("measured", 0.01, 0.02, rank.PAYS),
        ("measured", 0.0, 0.02, rank.DOES_NOT_PAY),
        ("measured", -0.02, -0.01, rank.DOES_NOT_PAY),
        ("screened", 0.1, 0.2, rank.SCREENED),
        ("screened", 0.0, 0.1, rank.DOES_NOT_PAY),
        ("screened", -0.2, -0.1, rank.DOES_NOT_PAY),
        ("documented", 0.1, 0.2, rank.NOT_MEASURED),
        ("benchmarked", 0.1, 0.2, rank.NOT_MEASURED),
        ("profiled", 0.1, 0.2, rank.NOT_MEASURED),
    ],
)
def test_group(basis: Basis, low: float, high: float, group: int) -> None:
    assert rank.group(finding("x", saving=saving(basis, low, high))) == group
    assert rank.group(finding("x")) == rank.NOT_MEASURED
