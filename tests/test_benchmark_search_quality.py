"""benchmarks/batch_limits.py: a budget that runs out as the allocator does, limits, and their table. Nothing is timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import batch_limits  # noqa: E402  # it stands in that folder


def test_what_passes_the_budget_raises_and_takes_nothing() -> None:
    import torch

    with batch_limits.capped(4000) as live:
        first = torch.zeros(750)  # 3000 bytes
        with pytest.raises(RuntimeError, match="can't allocate memory: you tried to allocate 2000 bytes"):
            torch.zeros(500)
        second = torch.zeros(250)  # exactly the rest
    assert (live.events, live.now) == (1, 4000)
    assert len(first) + len(second) == 1000


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 8, 399])
def test_bisection_finds_every_limit(limit: int) -> None:
    found, trials = batch_limits.bisected(lambda size: size <= limit)
    assert found == limit
    assert trials <= 2 * max(limit, 1).bit_length() + 1


def test_a_limit_that_is_off_and_a_finder_that_died_are_told() -> None:
    true = {"limit": 200, "trials": 16, "seconds": 9.0, "peaks": [99, 101]}
    run = {
        "part": "batch", "regime": "wide", "budget": 100 * 2**20, "torch": "2.13.0", "true": true, "lightning_true": true,
        "ours": {"limit": 205, "seconds": 1.0, "predictions": 9, "confirming_seconds": 2.0, "events": 1, "peaks": []},
        "power": {"limit": None, "died": "RuntimeError: no", "events": 2, "seconds": 3.0, "version": "2.6.6"},
        "binsearch": {},
    }  # fmt: skip
    table = batch_limits.batch_table([run])
    assert (
        "| wide | 100 | 200 | 205 | +2.50 | 9 | 9 / 1.0 / 2.0 | 1 | 200 | died: RuntimeError: no (2 out of memory, 3 s) "
        "| not installed |" in table
    )
    assert "1 runs: ours within 2 % of the true limit in 0, out of memory 1 times" in table
