"""Where a series changed its level: E-divisive means. Imports the standard library only.

Method: D. S. Matteson and N. A. James, A Nonparametric Approach for Multiple Change Point Analysis of Multivariate Data,
Journal of the American Statistical Association 109 (2014) 334-345, https://arxiv.org/abs/1306.4933, with exponent alpha = 1.
As in D. Daly et al., The Use of Change Point Detection to Identify Software Performance Regressions in a Continuous
Integration System, ICPE 2020, https://arxiv.org/abs/2003.00584, a segment is split into two parts that fill it; the paper of
2014 also tries every end of the right part, which finds short bumps earlier and costs a factor of n.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

LEVEL = 0.01  # of calling a change where there is none, for each series; a false alarm costs more than a late one
PERMUTATIONS = 499  # p goes down to 0.002, and is never 0
MINIMUM = 4  # points on each side: a level has a median; 2 or 3 see a step a gate sooner at most (benchmarks/change_points.md)

_ROUNDING = 1e-9  # of a statistic: permutations that come to the same sum in another order count as equal

_Row = tuple[float, float]  # a value, and the sum of its distances to all values of its segment


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A series is at another level from the point `index` on.

    p: of the permutation test, None where values are exact and need none. before, after: medians of the segments beside it.
    """

    index: int
    before: float
    after: float
    p: float | None = None

    @property
    def change(self) -> float | None:
        """By which share the level changed, None where it was zero."""
        return self.after / self.before - 1 if self.before else None


def change_points(
    values: Sequence[float],
    level: float = LEVEL,
    minimum: int = MINIMUM,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> list[ChangePoint]:
    """The changes of level, in order of the series; none for fewer than 2 · minimum points.

    values: finite, oldest first. The strongest split of all segments is tested by shuffling inside the segments; where p is
    at most `level` it stands, its two parts are split in turn, and the first that does not stand ends the search. The
    same values give the same answer. A scan of n points takes n insertions into a sorted list, and a test at most
    `permutations` scans; one that cannot come out below `level` any more is ended.
    """
    chance = random.Random(seed)
    segments = [_rows(values)]
    found: dict[int, float] = {}
    while True:
        strongest, split, number = max(
            (*_best_split(rows, minimum), position) for position, rows in enumerate(segments)
        )
        if strongest <= 0:
            break
        p = _p(segments, strongest, minimum, level, permutations, chance)
        if p is None:
            break
        at = sum(len(rows) for rows in segments[:number]) + split
        found[at] = p
        parts = [value for value, _ in segments[number]]
        segments[number : number + 1] = [_rows(parts[:split]), _rows(parts[split:])]
    return _points_with_medians(values, dict(sorted(found.items())))


def exact_changes(values: Sequence[float]) -> list[ChangePoint]:
    """Every place where exact values, such as counters, are not what they were the time before."""
    places: dict[int, float | None] = {i: None for i in range(1, len(values)) if values[i] != values[i - 1]}
    return _points_with_medians(values, places)


def _points_with_medians(
    values: Sequence[float], found: dict[int, float] | dict[int, float | None]
) -> list[ChangePoint]:
    ends = [0, *found, len(values)]
    medians = [statistics.median(values[a:b]) for a, b in pairwise(ends) if b > a]
    return [ChangePoint(at, medians[i], medians[i + 1], p) for i, (at, p) in enumerate(found.items())]


def _rows(values: Sequence[float]) -> list[_Row]:
    """Each value with the sum of its distances to all of them, which no shuffling changes."""
    ordered = sorted(values)
    below = [0.0, *accumulate(ordered)]
    size = len(ordered)
    rows = []
    for value in values:
        k = bisect_left(ordered, value)
        rows.append((value, k * value - below[k] + below[size] - below[k] - (size - k) * value))
    return rows


def _best_split(rows: Sequence[_Row], minimum: int) -> tuple[float, int]:
    """The largest statistic Q of all splits with `minimum` points on each side, and how many points are left of it.

    Q = m·n / (m + n) · (2 · mean distance across − mean distance on the left − mean distance on the right), means over
    pairs, as Matteson and James have it. (-inf, 0) for too few points.
    """
    size = len(rows)
    total = sum(distances for _, distances in rows) / 2
    seen: list[float] = []  # the left part, sorted
    within = of_left = seen_sum = 0.0
    strongest, split = -math.inf, 0
    for m, (value, distances) in enumerate(rows[: size - minimum], start=1):
        place = bisect_left(seen, value)
        below = sum(seen[:place]) if 2 * place < m else seen_sum - sum(seen[place:])
        within += place * value - below + seen_sum - below - (m - 1 - place) * value
        seen.insert(place, value)
        seen_sum += value
        of_left += distances
        if m >= minimum:
            across = of_left - 2 * within
            statistic = _statistic(m, size - m, across, within, total - within - across)
            if statistic > strongest:
                strongest, split = statistic, m
    return strongest, split


def _statistic(m: int, n: int, across: float, left: float, right: float) -> float:
    """Q of two parts with m and n points, from the sums of distances over pairs."""
    apart = 2 * across / (m * n) - 2 * left / (m * (m - 1)) - 2 * right / (n * (n - 1))
    return m * n / (m + n) * apart


def _p(
    segments: list[list[_Row]], strongest: float, minimum: int, level: float, permutations: int, chance: random.Random
) -> float | None:
    """How rarely shuffled segments have so strong a split, None where that is more often than `level`."""
    as_strong = 1  # the series itself is one of its permutations
    for _ in range(permutations):
        for rows in segments:
            shuffled = rows.copy()
            chance.shuffle(shuffled)
            if _best_split(shuffled, minimum)[0] >= strongest * (1 - _ROUNDING):
                as_strong += 1
                break
        if as_strong > level * (permutations + 1):
            return None
    p = as_strong / (permutations + 1)
    return p if p <= level else None
