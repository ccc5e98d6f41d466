"""The edges of a verdict, the words where there is none, and the plan of a pair, all known on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from perfaudit.gate import signed_rank
from perfaudit.gate.bounds import Bounds, _tail, between_pairs
from perfaudit.gate.decision import ALPHA, LOOKS, PAIRS, time_verdict
from perfaudit.gate.pair_plan import SHORTEST, Plan, first_side_and_order, plan_pair
from perfaudit.gate.records import ORDERS, Blocks, Pair, Quad, Side, TargetRecord, TimedBlock
from perfaudit.measure.stats import looks_made


def test_looks_whose_bounds_meet_do_not_contradict_each_other() -> None:
    def rule(groups: Sequence[Sequence[float]], *_: float) -> Bounds:
        return Bounds(0.2, 0.5, 0.0) if len(groups) == 4 else Bounds(0.0, 0.2, 0.0)

    assert time_verdict(record(8), rule=rule).verdict == "regressed"


def record(pairs: int, quads: int = 1, base: float = 0.01, head: float = 0.01) -> TargetRecord:
    """Pairs of processes whose steps took these seconds."""
    seconds: dict[Side, float] = {"base": base, "head": head}
    blocks = tuple(TimedBlock(side, 1, seconds[side], seconds[side], 0.0, 1.0, 0.5, 0.0) for side in ORDERS[0])
    return TargetRecord("t.py", "main", pairs=[Pair("base", 0, quads=[Quad(blocks)] * quads) for _ in range(pairs)])


@pytest.mark.parametrize(
    ("pairs", "ended", "made"),
    [
        (0, False, []),
        (3, False, []),
        (3, True, [(3, 0.010)]),
        (4, False, [(4, 0.002)]),
        (4, True, [(4, 0.002), (4, 0.010)]),
        (5, True, [(4, 0.002), (5, 0.008)]),
        (9, True, [(4, 0.002), (8, 0.003), (9, 0.005)]),
        (16, False, [(4, 0.002), (8, 0.003), (16, 0.005)]),
        (17, True, [(4, 0.002), (8, 0.003), (16, 0.005)]),
    ],
)
def test_looks_and_what_they_spend(pairs: int, ended: bool, made: list[tuple[int, float]]) -> None:
    assert PAIRS == 16
    assert pytest.approx(0.01) == ALPHA
    found = looks_made(LOOKS, pairs, ended)
    assert [number for number, _ in found] == [number for number, _ in made]
    assert [alpha for _, alpha in found] == pytest.approx([alpha for _, alpha in made])


UP, FAR = math.log1p(0.01), math.log1p(0.05)  # what is tolerated, and the limit


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (UP, 0.2, "inconclusive"),  # as far as is tolerated, and not beyond
        (UP + 1e-9, 0.2, "regressed"),
        (UP + 1e-9, UP + 1e-8, "regressed"),  # below the limit as well: the loss is shown
        (-0.2, -UP, "pass"),
        (-0.2, -UP - 1e-9, "improved"),
        (-0.2, FAR, "inconclusive"),
        (-0.2, FAR - 1e-9, "pass"),
    ],
)
def test_ends_of_an_interval_that_meet_a_threshold(low: float, high: float, verdict: str) -> None:
    found = time_verdict(record(4), rule=lambda *_: Bounds(low, high, 0.5))
    assert found.verdict == verdict
    assert [found.low, found.high] == pytest.approx([math.exp(low), math.exp(high)])
    assert found.ratio == pytest.approx(math.exp(min(max(0.0, low), high)))
    assert found.smallest == pytest.approx(1.01 * math.exp((high - low) / 2) - 1)
    assert found.p == 1.0  # 0.5 of a look that has a fifth of the error
    assert (found.reason == "") == (verdict != "inconclusive")


def test_the_smallest_p_counts_at_the_share_of_its_look() -> None:
    ps = {4: 0.001, 8: 0.0003, 16: 0.1}
    found = time_verdict(record(16), rule=lambda groups, *_: Bounds(-1.0, 1.0, ps[len(groups)]))
    assert found.p == pytest.approx(0.001)  # 0.001 · 5, 0.0003 · 10 / 3, 0.1 · 2


def test_identical_numbers_have_no_error() -> None:
    assert [_tail(above, 0.0, 3) for above in (-0.1, 0.0, 0.1)] == [1.0, 1.0, 0.0]


def test_nothing_is_known_of_one_pair_nor_of_no_value() -> None:
    assert between_pairs([[0.1, 0.2]], 0.0, 0.1, 0.1) == Bounds(-math.inf, math.inf, 1.0)
    assert signed_rank.interval([], 0.1, 0.1) == (-math.inf, math.inf)


def test_averages_that_equal_the_threshold_are_not_above_it() -> None:
    assert signed_rank.p_above([1.0, 1.0, 1.0], 1.0) == 1.0
    assert signed_rank.p_above([1.0, 1.0, 1.0], 0.9) == 1 / 8


FEW = "too few for an interval"


@pytest.mark.parametrize(
    ("seen", "interrupted", "reason"),
    [
        (record(1, 3), False, f"3 comparisons in 1 pair of processes are {FEW}: raise --budget"),
        (record(2, 2), True, f"interrupted: 4 comparisons in 2 pairs of processes are {FEW}"),
        (record(1, 1, 0.1), False, f"1 comparison in 1 pair of processes is {FEW}: raise --budget"),
        (
            record(1, 1, 0.25, 0.1),
            False,
            f"1 comparison in 1 pair of processes is {FEW} (a step takes 0.25 s): raise --budget",
        ),
        (record(0), True, "not reached: interrupted before its turn"),
        (TargetRecord("t.py", pairs=[Pair("head", 1)]), True, "interrupted before anything was measured"),
        (
            TargetRecord("t.py", pairs=[Pair("head", 1)]),
            False,
            "nothing was measured: once both versions had started, the budget had no room for the shortest comparison; "
            "raise --budget",
        ),
        (
            TargetRecord("t.py", pairs=[Pair("head", 1, quad_seconds=9.0), Pair("head", 2, quad_seconds=12.34)]),
            False,
            "nothing was measured: once both versions had started, the budget had no room for "
            "the shortest comparison (12 s); raise --budget",
        ),
        (TargetRecord("t.py", failures={"base": "why"}), False, "the reference does not run: why"),
    ],
)
def test_why_there_is_no_verdict(seen: TargetRecord, interrupted: bool, reason: str) -> None:
    seen.interrupted = interrupted
    found = time_verdict(seen)
    assert (found.reason, found.smallest) == (reason, None)
    assert found.p == (1.0 if seen.pairs and seen.pairs[0].quads else None)


@pytest.mark.parametrize(
    ("seconds_per_step", "seconds", "length", "plan"),
    [
        (0.010, 6.0, "short", Plan(4, 17, 2, 0)),  # rounds of 88 ms: 68 in 6 s
        (0.010, 60.0, "short", Plan(4, 17, 2, 0)),  # 3 s on each side are enough
        (0.001, 6.0, "short", Plan(4, 17, 20, 0)),
        (1e-6, 6.0, "short", Plan(4, 20, 2000, 0)),
        (0.300, 6.0, "short", Plan(4, 1, 1, 0)),  # rounds of 1.208 s: 4
        (0.500, 6.0, "short", Plan(2, 1, 1, 0)),  # rounds of 2.008 s: 2
        (9.000, 6.0, "short", Plan(2, 1, 1, 0)),
        (0.001, 6.0, "long", Plan(4, 1, 350, 1)),  # blocks of 0.35 s
        (0.001, 1.6, "long", Plan(4, 1, 99, 1)),
        (1e-5, 6.0, "long", Plan(4, 1, 2000, 1)),
        (0.090, 6.0, "long", Plan(4, 1, 3, 1)),
        (0.180, 6.0, "long", Plan(2, 1, 3, 1)),  # sixteen blocks of three would take 11.5 s
        (9.000, 6.0, "long", Plan(2, 1, 3, 1)),
    ],
)
def test_what_a_pair_is_made_of(seconds_per_step: float, seconds: float, length: Blocks, plan: Plan) -> None:
    assert plan_pair(seconds_per_step, seconds, length) == plan


def test_what_a_quad_takes() -> None:
    assert Plan(4, 2, 10, 1).quad_seconds(0.01) == pytest.approx(0.896)  # eight blocks of 11 steps and 2 ms
    assert {"short": Plan(2, 1, 1, 0), "long": Plan(2, 1, 3, 1)} == SHORTEST


def test_what_begins_is_drawn_evenly() -> None:
    drawn = [first_side_and_order(seed, 0, 0) for seed in range(400)]
    assert 160 < sum(first == "base" for first, _ in drawn) < 240
    assert 160 < sum(order == 0 for _, order in drawn) < 240
