"""Wilcoxon's signed-rank test of one sample, exactly, with the centre and interval that go with it. Standard library only."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import statistics
from collections.abc import Sequence


@functools.lru_cache(maxsize=4)  # one look asks for the interval and for the chance of the same values
def _walsh_averages(values: tuple[float, ...]) -> tuple[float, ...]:
    """Means of all pairs of values, each with itself too, in ascending order."""
    ascending = sorted(values)  # so that the means are runs in order, which are merged rather than sorted
    return tuple(sorted([(a + b) / 2 for at, a in enumerate(ascending) for b in ascending[at:]]))


def hodges_lehmann(values: Sequence[float]) -> float:
    """The centre of values: median of their Walsh averages.

    A third of the values may be anything without moving it far, and it is nearly as sharp as the mean where noise is
    normal. Hodges & Lehmann, Estimates of location based on rank tests, Ann. Math. Stat. 34 (1963) 598.
    """
    return statistics.median(_walsh_averages(tuple(values)))


def p_above(values: Sequence[float], threshold: float) -> float:
    """Chance of values at least this far above the threshold if their centre is not above it; 1 of no values.

    Averages that equal the threshold count for it, so that ties make the test no sharper than it is.
    """
    averages = _walsh_averages(tuple(values))
    return _at_least(len(values), len(averages) - bisect.bisect_right(averages, threshold))


def interval(values: Sequence[float], alpha_low: float, alpha_high: float) -> tuple[float, float]:
    """Bounds of the centre, each of which misses it with the chance given for it; infinite where values are too few.

    Hollander, Wolfe & Chicken, Nonparametric Statistical Methods (3rd ed. 2013), ch. 3.
    """
    averages = _walsh_averages(tuple(values))
    low, high = (_rank(len(values), alpha) for alpha in (alpha_low, alpha_high))
    return averages[low] if low >= 0 else -math.inf, averages[-1 - high] if high >= 0 else math.inf


@functools.cache  # the chances of all looks of a plan are a few
def _rank(n: int, alpha: float) -> int:
    """Largest number of averages that may lie below the centre in at most `alpha` of cases; -1 if not even 0 may."""
    total, most = 0, -1
    for count, ways in enumerate(_ways(n)):
        total += ways
        if total > alpha * (1 << n):
            break
        most = count
    # With `most` averages or fewer below it, a value is rejected; the first one that is not has one more below it.
    return most if n else -1


def _at_least(n: int, count: int) -> float:
    """P(sum of positive ranks >= count) for n values whose signs are drawn by a fair coin."""
    return _ways_of_at_least(n)[count] / (1 << n)


@functools.cache
def _ways_of_at_least(n: int) -> tuple[int, ...]:
    """In how many of the 2**n choices of signs the positive ranks add up to 0 or more, 1 or more, …; 0 of more than all."""
    return tuple(itertools.accumulate((0, *reversed(_ways(n)))))[::-1]


@functools.cache
def _ways(n: int) -> tuple[int, ...]:
    """In how many of the 2**n choices of signs the positive ranks add up to 0, 1, 2, … n(n+1)/2."""
    ways = [1]
    for rank in range(1, n + 1):
        longer = ways + [0] * rank
        for total, known in enumerate(ways):
            longer[total + rank] += known
        ways = longer
    return tuple(ways)
