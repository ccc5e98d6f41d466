"""benchmarks/gate_one_training.py: verdicts of races that are known; the committed table says what docs/gate.md tells of it."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import gate_one_training as study  # noqa: E402  # it stands in that folder

QUIET = 0.002 * np.array([(at % 5) - 2.0 for at in range(64)])


@pytest.mark.parametrize(
    ("slower", "control", "end", "found"),
    [
        (0.0, 0.0, 64, ("pass", 16)),
        (0.1, 0.0, 64, ("regressed", 16)),
        (-0.1, 0.0, 64, ("improved", 16)),
        (0.1, 0.05, 64, ("pairs", 8)),
        (0.1, 0.05, 7, ("inconclusive", 7)),  # the time is over
        (0.05, 0.0, 10, ("regressed", 10)),
    ],
)
def test_a_race_that_is_known(slower: float, control: float, end: int, found: tuple[str, int]) -> None:
    assert study.said(QUIET - math.log1p(slower), QUIET + control, end) == found


@pytest.mark.parametrize("noise", study.NOISES.values(), ids=list(study.NOISES))
def test_quads_of_identical_code_lie_around_nothing(noise: study.Noise) -> None:
    for logs in study.raced(np.random.default_rng(1), noise, 40, 200):
        assert logs.shape == (200, 40)
        assert abs(np.median(logs)) < 0.01
        assert 0.3 < np.quantile(np.abs(logs), 0.68) / noise.scatter < 1.3


def test_the_committed_table_has_every_row_and_no_false_alarm_of_what_is_assumed() -> None:
    rows = [line.strip("| ").split(" | ") for line in (BENCHMARKS / "gate_one_training.md").read_text().splitlines()]
    cells = {(row[0], row[1], row[2]): float(row[3]) for row in rows if len(row) == 9 and row[1].startswith("+")}
    wanted = {
        (name, f"+{100 * true:g} %", str(end)) for name in study.NOISES for true in study.TRUE for end in study.ENDS
    }
    assert cells.keys() == wanted
    same = {key: share for key, share in cells.items() if key[1] == "+0 %"}
    assumed = [share for key, share in same.items() if "violates" not in key[0]]
    others = [share for key, share in same.items() if "violates" in key[0]]
    tolerated = [share for key, share in cells.items() if key[1] == "+1 %" and "violates" not in key[0]]
    page = " ".join((ROOT / "docs" / "gate.md").read_text().split())
    assert f"none of {1000 * len(assumed):,} races of identical code was called regressed" in page
    assert max(assumed) == 0.0
    assert f"at most {max(others)} %" in page
    assert f"in at most {max(tolerated)} % of races" in page
