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
        (0.1, 0.05, 64, ("pairs", 16)),
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
    lines = [line.strip("| ").split(" | ") for line in (BENCHMARKS / "gate_one_training.md").read_text().splitlines()]
    rows = {(row[0], row[1], row[2]): row[3:] for row in lines if len(row) == 9 and row[1].startswith("+")}
    wanted = {
        (name, f"+{100 * true:g} %", str(end)) for name in study.NOISES for true in study.TRUE for end in study.ENDS
    }
    assert rows.keys() == wanted

    def shares(column: int, violates: bool, true: str = "") -> list[float]:
        """Percentages of a column, of noise that is as assumed or not; of rows with this true slowdown, of all without it."""
        return [
            float(row[column])
            for key, row in rows.items()
            if ("violates" in key[0]) is violates and key[1] == (true or key[1])
        ]

    regressed, improved, to_pairs = 0, 1, 4
    assumed, others = shares(regressed, False, "+0 %"), shares(regressed, True, "+0 %")
    tolerated, alike = shares(regressed, False, "+1 %"), shares(regressed, True, "+1 %")
    sent = [float(row[to_pairs]) for key, row in rows.items() if "quads alike by 0.6" in key[0]]
    page = " ".join((ROOT / "docs" / "gate.md").read_text().split())
    assert f"none of {1000 * len(assumed):,} races of identical code was called regressed" in page
    assert max(assumed) == 0.0
    assert f"regressed in at most {max(others)} %" in page
    assert f"in at most {max(tolerated)} % of races" in page
    assert f"at most {max(shares(improved, False))} % of any row improved" in page
    assert f"improved in at most {max(shares(improved, True))} %" in page
    assert f"in up to {max(alike)} %" in page
    assert f"sends {min(sent):.0f} to {max(sent):.0f} % to pairs" in page
