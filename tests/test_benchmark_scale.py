"""What many machines are worth: simulated on sets whose times are known, and the page as it is printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import scale  # noqa: E402  # found there


@pytest.mark.parametrize(
    ("every", "nodes", "seconds"),
    [
        ([[1.0] * 4], 1, 4.0),
        ([[1.0] * 4], 4, 1.0),
        ([[1.0] * 8], 8, 2.0),  # the second half waits for the look at the first
        ([[1.0] * 4] * 4, 2, 8.0),
        ([[1.0] * 4, [3.0]], 2, 4.0),
    ],
)
def test_sets_are_spread_over_nodes(every: list[list[float]], nodes: int, seconds: float) -> None:
    assert scale.spread(every, (4, 8, 16), nodes) == seconds


def test_a_climb_keeps_here_what_does_not_go_out() -> None:
    climb = {"command": "", "machine": "", "load": 0.0, "knobs": 16, "seconds": 104.0, "generations": [1.0] * 4}
    lines = [line for line in scale.climb_lines({"climb": climb}) if line.startswith(("| 1", "| 8", "| 6"))]
    assert lines == ["| 1 | 104 s | 100% | 104 |", "| 8 | 102 s | 98% | 104 |", "| 64 | 102 s | 98% | 104 |"]


def test_the_page_is_what_the_records_say() -> None:
    records = json.loads(scale.RECORDS.read_text())
    page = scale.PAGE.read_text()
    assert "\n".join(scale.climb_lines(records)) in page
    assert "\n".join(scale.rank_lines(records)) in page


def test_the_page_has_the_gates_of_an_organisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one node: sixty-four are simulated in seconds, which the others need not cost each run of the tests."""
    monkeypatch.setattr(scale, "NODES", (1,))
    page = scale.PAGE.read_text().splitlines()
    assert [line for line in scale.gate_lines() if line not in page] == []
