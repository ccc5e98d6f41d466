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
import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

# Pairs beyond twice the number of effects, before anything is told: of fewer, one that is disturbed looks like an effect.
SPARE_PAIRS = 4
# A pair is disturbed where it lies so many times as far from the effects as half of all pairs do at most: 3 standard deviations.
DISTURBED = 4.5
ROUNDING = 1e-9  # of sums of logarithms
MOST_FITS = 8  # of the effects, without the pairs that the fit before has shown to be disturbed
# Of the pairs that effects were last fitted to, how many new ones wait for a further fit. Four thousand pairs of seven candidates
# take as long to fit as two pairs of short steps, and no step runs meanwhile.
FITTED_WITHOUT = 1 / 128

Half = frozenset[str]
Row = tuple[int, ...]  # of a pair: 1 for a candidate in the first block, -1 for one in the second, 0 for one in none
Pair = tuple[
    list[str], list[str], float
]  # who was in place in either block, and the logarithm of the ratio of their times


@dataclass(frozen=True, slots=True)
class _Fit:
    """The values of these candidates from so many pairs, of which `kept` are undisturbed; no values of too few of those."""

    keys: Sequence[str]
    values: dict[str, list[float]]
    pairs: int
    kept: int

    @property
    def is_enough(self) -> bool:
        """Whether so many pairs were undisturbed that something can be told."""
        return self.kept >= fewest_pairs(len(self.keys))

    @property
    def freedom(self) -> int:
        """Degrees of freedom that the effects leave of the pairs from which they are."""
        return self.kept - len(self.keys)


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
    _last_fit: _Fit | None = None  # that was enough
    _fitted: int = 0  # pairs, when it was tried last

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
        """Of a Hadamard matrix with a column for each slot.

        Four rows at least: with two, moods of the machine told identical code from itself more often.
        """
        slots = sum(any(key in is_open for key in slot) for slot in self.slots)
        return 1 << max(2, (slots - 1).bit_length())

    def add(self, first: Half, second: Half, log_ratio: float) -> None:
        """Note a pair: the logarithm of the first block's time over that of the second."""
        self.pairs.append((sorted(first), sorted(second), log_ratio))

    def values(self) -> dict[str, list[float]]:
        """By key, a value of each pair that it was in, in their order: the logarithm of a ratio, see above.

        Empty before there are twice as many undisturbed pairs as effects, and SPARE_PAIRS more. Where later pairs are disturbed
        so often that this no longer holds, values stay those of the pairs before, see `pairs_left_out`. The last few of many
        pairs wait for others, see FITTED_WITHOUT, unless `fit_to_all` is called.
        """
        known = self._fit.values if self._fit is not None else {}
        return {key: known.get(key, []) for key in self._raced_keys}

    @property
    def freedom(self) -> int | None:
        """Degrees of freedom that the effects leave of the pairs from which they are; None before there are enough pairs."""
        return self._fit.freedom if self._fit is not None else None

    @property
    def pairs_left_out(self) -> int:
        """The last pairs, which tell nothing because too many of them are disturbed."""
        return self._fitted - self._fit.pairs if self._fit is not None else 0

    def fit_to_all(self) -> None:
        """Have values of all pairs, however few have come since the last fit: the race has ended."""
        if self._fitted != len(self.pairs):
            self._fit_now()

    @property
    def _fit(self) -> _Fit | None:
        """Of the pairs so far, or of those of the last time that there were enough undisturbed ones; None before that."""
        if len(self.pairs) - self._fitted > FITTED_WITHOUT * self._fitted:
            self._fit_now()
        return self._last_fit

    def _fit_now(self) -> None:
        self._fitted, keys = len(self.pairs), self._raced_keys
        if len(self.pairs) >= fewest_pairs(len(keys)):
            found = _fit_without_disturbed(keys, self.pairs)
            self._last_fit = found if found.is_enough else self._last_fit

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


def fewest_pairs(effects: int) -> int:
    """Undisturbed pairs that tell something of so many candidates, a control among them."""
    return 2 * effects + SPARE_PAIRS


def _fit_without_disturbed(keys: Sequence[str], pairs: Sequence[Pair]) -> _Fit:
    """Values of these candidates from effects by least squares, without the pairs that lie far from them.

    One step that is disturbed would be in the effects of all of them, and leaving its pair out of the values afterwards would not
    take it out of them. A fit that leaves too few, see `Halves.values`, is not made better: so few lie close to it by chance.
    """
    rows: list[Row] = [tuple((key in first) - (key in second) for key in keys) for first, second, _ in pairs]
    log_ratios = [log_ratio for _, _, log_ratio in pairs]
    kept = frozenset(range(len(rows)))
    effects = _effects(rows, log_ratios)
    for _ in range(MOST_FITS):
        rests = _rests(rows, log_ratios, effects)
        usual = statistics.median(map(abs, rests))
        now = frozenset(at for at, rest in enumerate(rests) if abs(rest) <= DISTURBED * usual + ROUNDING)
        if now == kept:
            break
        kept = now
        if len(kept) < fewest_pairs(len(keys)):
            return _Fit(keys, {}, len(rows), len(kept))
        effects = _effects([rows[at] for at in sorted(kept)], [log_ratios[at] for at in sorted(kept)])
    # Effects follow the pairs, so that what is left of these scatters less.
    wider = (len(kept) / (len(kept) - len(keys))) ** 0.5
    return _Fit(keys, _values(keys, rows, effects, _rests(rows, log_ratios, effects), wider), len(rows), len(kept))


def _values(
    keys: Sequence[str], rows: Sequence[Row], effects: Sequence[float], rests: Sequence[float], wider: float
) -> dict[str, list[float]]:
    """Of each candidate in each pair that it was in: its effect, and the influence of the pair on it, so many times."""
    found, inverse, different = {}, _inverse_of(rows), {*rows}
    for at, key in enumerate(keys):
        if not inverse[at][at]:  # nothing tells it from the others
            continue
        weight = wider * sum(1 for row in rows if row[at])
        influence = {row: weight * sum(a * b for a, b in zip(inverse[at], row, strict=True)) for row in different}
        found[key] = [effects[at] + rest * influence[row] for row, rest in zip(rows, rests, strict=True) if row[at]]
    return found


def _effects(rows: Sequence[Row], log_ratios: Sequence[float]) -> list[float]:
    """Least squares; 0 for a column that nothing tells from the others. Of many rows few are different."""
    totals = dict.fromkeys(rows, 0.0)
    for row, log in zip(rows, log_ratios, strict=True):
        totals[row] += log
    towards = [sum(row[i] * total for row, total in totals.items()) for i in range(len(rows[0]))]
    return [sum(a * b for a, b in zip(row, towards, strict=True)) for row in _inverse_of(rows)]


def _inverse_of(rows: Sequence[Row]) -> list[list[float]]:
    """Of the products of the columns with each other."""
    columns, counts = range(len(rows[0])), Counter(rows)
    return _inverse([[float(sum(n * row[i] * row[j] for row, n in counts.items())) for j in columns] for i in columns])


def _rests(rows: Sequence[Row], log_ratios: Sequence[float], effects: Sequence[float]) -> list[float]:
    """What the effects leave of each pair's logarithm."""
    expected = {row: sum(sign * effect for sign, effect in zip(row, effects, strict=True)) for row in {*rows}}
    return [log - expected[row] for row, log in zip(rows, log_ratios, strict=True)]


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
