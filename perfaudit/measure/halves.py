"""Candidates that can be in place at the same time, raced together: half of them in one block of steps, the others in the next.

A quad tells of one candidate. In such a pair of blocks each candidate is in one of them, so that every step tells of all of them:
after as many steps, intervals of four candidates are about half as wide (benchmarks/simulated_halves.md). Which half is in
place is a row of a Hadamard matrix with its complement. Over all rows, each two candidates are as often in the same block as not
(Plackett & Burman, Biometrika 33, 1946); what two patches do to each other is the same in both blocks, so that it cancels
(fold-over: Box & Hunter, Technometrics 3, 1961). What comes of it is the effect of a candidate with half of the others in place,
between what it gains alone and what it gains beside all others. Once in each matrix nothing and everything are a pair, too, so
that there are steps of the user's own code.

The effects are those of least squares over the logarithms of all pairs' ratios. Each pair gives a value for each candidate of
which the effect is the mean, about, and whose scatter is that of the effect: the effect, and the influence of the pair on it
(Hampel, Journal of the American Statistical Association 69, 1974). So intervals of values hold for effects. Knows no torch and no
clock.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

# Pairs beyond the number of effects, before anything is told: a scatter estimated from fewer degrees of freedom is chance.
SPARE_PAIRS = 4

Half = frozenset[str]
Pair = tuple[
    list[str], list[str], float
]  # who was in place in either block, and the logarithm of the ratio of their times


@dataclass(slots=True)
class Halves:
    """The pairs of a race so far, and the rows that come next.

    slots: keys of candidates, those of one list being settings of one thing, of which one at a time can be in place.
    """

    slots: Sequence[Sequence[str]]
    order: random.Random
    pairs: list[Pair] = field(default_factory=list)
    _rows: list[tuple[Half, Half]] = field(default_factory=list)
    _of: Half = frozenset()  # those that were open when the rows were made

    @property
    def keys(self) -> Half:
        """All candidates that are raced in this way."""
        return frozenset(key for slot in self.slots for key in slot)

    def next_pair(self, is_open: Collection[str]) -> tuple[Half, Half]:
        """Who is in place in the first block of a pair, and in the second: each open slot in one of them, by one of its keys."""
        now = self.keys & frozenset(is_open)
        if not self._rows or now != self._of:
            self._of = now
            self._rows = self._design(now)
        return self._rows.pop()

    def rows_of_design(self, is_open: Collection[str]) -> int:
        """Pairs after which each two of these were as often together as not, but for that of nothing and everything."""
        return self._size(is_open) + 1

    def _size(self, is_open: Collection[str]) -> int:
        """Of a Hadamard matrix with a column for each slot."""
        slots = sum(any(key in is_open for key in slot) for slot in self.slots)
        return 1 << max(1, (slots - 1).bit_length())

    def add(self, first: Half, second: Half, log_ratio: float) -> None:
        """Note a pair: the logarithm of the first block's time over that of the second."""
        self.pairs.append((sorted(first), sorted(second), log_ratio))

    def values(self) -> dict[str, list[float]]:
        """By key, a value of each pair that it was in, in their order: the logarithm of a ratio, see above.

        Empty before there are SPARE_PAIRS more pairs than effects.
        """
        keys, n = self._raced_keys, len(self.pairs)
        if n < len(keys) + SPARE_PAIRS:
            return {key: [] for key in keys}
        log_ratios = [log_ratio for _, _, log_ratio in self.pairs]
        rows = [[(key in first) - (key in second) for key in keys] for first, second, _ in self.pairs]
        inverse = _inverse([[_dot(rows, i, j) for j in range(len(keys))] for i in range(len(keys))])
        towards = [sum(row[i] * log for row, log in zip(rows, log_ratios, strict=True)) for i in range(len(keys))]
        effects = [sum(a * b for a, b in zip(row, towards, strict=True)) for row in inverse]
        rests = [
            log - sum(sign * effect for sign, effect in zip(row, effects, strict=True))
            for row, log in zip(rows, log_ratios, strict=True)
        ]
        wider = (n / self.freedom) ** 0.5  # effects follow the pairs, so that what is left of these scatters less
        found: dict[str, list[float]] = {}
        for at, key in enumerate(keys):
            if not inverse[at][at]:  # nothing tells it from the others
                found[key] = []
                continue
            pairs = [number for number, row in enumerate(rows) if row[at]]
            weight = len(pairs) * wider
            found[key] = [
                effects[at] + weight * rests[pair] * sum(a * b for a, b in zip(inverse[at], rows[pair], strict=True))
                for pair in pairs
            ]
        return found

    @property
    def freedom(self) -> int:
        """Degrees of freedom that the effects leave of the pairs."""
        return len(self.pairs) - len(self._raced_keys)

    @property
    def _raced_keys(self) -> list[str]:
        return sorted({key for first, second, _ in self.pairs for key in (*first, *second)})

    def _design(self, now: Half) -> list[tuple[Half, Half]]:
        """The rows of a matrix with other columns and other signs of them each time, and nothing against everything.

        Of few rows, what three patches do to each other looks as if a fourth did it; with other signs it does so with another
        one.
        """
        told = {key: sum(key in first or key in second for first, second, _ in self.pairs) for key in now}
        chosen = []
        for slot in self.slots:
            mine = [key for key in slot if key in now]
            self.order.shuffle(mine)
            chosen += [min(mine, key=lambda key: told[key])] if mine else []
        size = self._size(now)
        columns = [(column, self.order.randrange(2)) for column in self.order.sample(range(size), len(chosen))]
        halves = [Half()]
        for row in range(size):
            signs = ((row & column).bit_count() % 2 == sign for column, sign in columns)
            halves.append(Half(key for key, is_on in zip(chosen, signs, strict=True) if is_on))
        pairs = []
        for half in halves:
            pair = [half, Half(chosen) - half]
            self.order.shuffle(pair)
            pairs.append((pair[0], pair[1]))
        self.order.shuffle(pairs)
        if not self.pairs:  # a race that ends soon has a step of the user's code
            pairs.sort(key=lambda pair: not min(pair, key=len))
        return pairs


def _dot(rows: Sequence[Sequence[int]], i: int, j: int) -> float:
    return float(sum(row[i] * row[j] for row in rows))


def _inverse(matrix: list[list[float]]) -> list[list[float]]:
    """Of a symmetric matrix, by Gauss and Jordan; a column that tells nothing new has no part in it (its row is zero)."""
    size = len(matrix)
    work = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for at in range(size):
        best = max(range(at, size), key=lambda row: abs(work[row][at]))
        work[at], work[best] = work[best], work[at]
        pivot = work[at][at]
        if abs(pivot) < 1e-9:
            work[at] = [0.0] * (2 * size)
            continue
        work[at] = [value / pivot for value in work[at]]
        for row in range(size):
            if row != at and (factor := work[row][at]):
                work[row] = [value - factor * other for value, other in zip(work[row], work[at], strict=True)]
    return [row[size:] for row in work]
