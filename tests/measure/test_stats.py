"""Intervals and verdicts where the answer is known on paper, and at the edges."""

from __future__ import annotations

import math
import random

import pytest

from perfaudit.measure.stats import TooFewRounds, quartiles, ratio_interval, signed_rank_quantile, verdict


@pytest.mark.parametrize(
    ("n", "index"),
    [
        (6, 0),  # tables of the signed-rank distribution, two-sided 5 %: critical value + 1 averages are left out
        (7, 2),
        (8, 3),
        (10, 8),
        (12, 13),
        (20, 52),
    ],
)
def test_signed_rank_quantile_matches_the_published_tables(n: int, index: int) -> None:
    assert signed_rank_quantile(n) == index


def test_equal_rounds_give_a_point() -> None:
    assert ratio_interval([[0.0] * 3] * 4) == (1.0, 1.0, 1.0)


def test_a_constant_ratio_is_found_exactly() -> None:
    assert ratio_interval([[math.log(0.5)] * 3] * 4) == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize("groups", [[], [[]], [[0.0]], [[0.1, 0.2], [0.1, 0.2, 0.3]]])
def test_few_rounds_give_no_interval(groups: list[list[float]]) -> None:
    with pytest.raises(TooFewRounds):
        ratio_interval(groups)


def test_processes_that_disagree_widen_the_interval() -> None:
    """Rounds agree within a process but not between processes: only the processes count."""
    together = [[0.0, 0.01, -0.01]] * 4
    apart = [[d, d + 0.01, d - 0.01] for d in (-0.2, -0.1, 0.1, 0.2)]
    _, low_together, high_together = ratio_interval(together)
    _, low, high = ratio_interval(apart)
    assert high_together - low_together < 0.05
    assert high - low > 0.4


def test_identical_code_is_seldom_called_different() -> None:
    """Rounds with a spread between processes as large as within: at most 5 % of intervals miss 1."""
    draw = random.Random(7)
    misses = 0
    for _ in range(600):
        groups = []
        for _ in range(4):
            process = draw.gauss(0, 0.03)
            groups.append([process + draw.gauss(0, 0.03) for _ in range(3)])
        _, low, high = ratio_interval(groups)
        misses += not low <= 1 <= high
    assert misses <= 30


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.8, 0.9, "faster"), (1.1, 1.2, "slower"), (0.9, 1.1, "undecided"), (0.9, 1.0, "undecided")],
)
def test_verdict(low: float, high: float, word: str) -> None:
    assert verdict(low, high) == word


def test_quartiles() -> None:
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, 2.0, 4.0)


def test_one_process_gives_a_wider_interval_because_it_cannot_know_the_others() -> None:
    rounds = [0.01 * i for i in range(-6, 7)]
    _, low, high = ratio_interval([rounds])
    _, narrow_low, narrow_high = ratio_interval([rounds[::3], rounds[1::3], rounds[2::3]])
    assert math.log(high / low) == pytest.approx(2.2 * 0.05)
    assert low < narrow_low and high > narrow_high
