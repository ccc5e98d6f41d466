"""Which optimizer updates make one step: the period of the order in which a script's optimizers are stepped. Pure."""

from __future__ import annotations

import collections
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 64  # updates of a period; a GAN that steps its discriminator 25 times for one step of its generator has 26
SHORTEST_ROW = 16  # updates of one optimizer before the first of another: in a GAN, the other comes up again before
MANY_ANEW = 4  # optimizers that have a single row of updates: of several that make a step together, each comes up again
FIRST_ROUND = 8  # updates, each of another optimizer, that may be the first step of several
ANEW = 1 << 30  # in the place of their numbers: one optimizer that is built anew again and again
FEWEST_BEHIND = 4  # steps behind a training of another optimizer alone, from which on they are the steps
REPEATS = 2  # of a period before it is believed; a single one would fit any order


@dataclass(frozen=True, slots=True)
class Rhythm:
    """bounds: places in the sequence of updates at which a step begins or ends, in order; none for no update at all.

    is_regular: an order repeats to the end of the sequence, and a step is one round of it. optimizers: their numbers, ANEW for
    all that are built anew.
    """

    bounds: tuple[int, ...]
    is_regular: bool
    optimizers: frozenset[int] = frozenset()

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Each whole step, as the place of its first update and the place behind its last one."""
        return tuple(zip(self.bounds, self.bounds[1:], strict=False))


def find_rounds(updates: Sequence[int]) -> Rhythm:
    """As `find_rhythm`, of an order in which each optimizer comes up several times, each round: an epoch of a GAN that steps
    its generator with every fifth batch repeats too, and is not one step."""
    return find_rhythm(updates, by_rounds=True)


def find_rhythm(updates: Sequence[int], by_rounds: bool = False) -> Rhythm:
    """The rhythm of a sequence of updates, each given by the number of its optimizer.

    One optimizer makes a step with each update. Several make one with the shortest order that repeats to the end of the
    sequence; what comes before that (a warm-up of one of them) is left out. Optimizers that have their updates one behind the
    other, as where a model is trained layer by layer, make a step with each update too. Where no order repeats, because one of
    them is stepped now and then, a step begins with each update of the optimizer that was stepped first, if the one before was
    another's. Optimizers that are built anew again and again, for each task of a meta-learning say, count as one. A training of
    one optimizer alone, ahead of one of others, is left out, as a warm-up is.
    """
    updates = _with_one_for_those_built_anew(updates)
    bounds, is_regular = _find_bounds(updates, by_rounds)
    return Rhythm(bounds, is_regular, frozenset(updates))


def _with_one_for_those_built_anew(updates: Sequence[int]) -> Sequence[int]:
    if len(set(updates)) == len(updates) <= FIRST_ROUND:
        return updates
    rows = collections.Counter(one for one, _ in itertools.groupby(updates))
    anew = {one for one, number in rows.items() if number == 1}
    return [ANEW if one in anew else one for one in updates] if len(anew) >= MANY_ANEW else updates


def _find_bounds(updates: Sequence[int], by_rounds: bool) -> tuple[tuple[int, ...], bool]:
    """The bounds of steps, and whether an order repeats."""
    if not updates:
        return (), True
    if len(set(updates)) == 1:
        return tuple(range(len(updates) + 1)), True
    for period in range(2, min(LONGEST, len(updates) // REPEATS) + 1):
        begin = _repeats_from(updates, period)
        rest = len(updates) - begin
        if rest >= REPEATS * period and rest * 2 >= len(updates) and len(set(updates[begin:])) > 1:
            if by_rounds and _rounds_of(updates[begin : begin + period]) > 1:
                break
            first = begin + _offset(updates, begin, period)
            return tuple(range(first, len(updates) + 1, period)), True
    if _is_one_behind_the_other(updates):
        return tuple(range(len(updates) + 1)), True
    anchor = updates[0]
    alone = next(at for at, one in enumerate(updates) if one != anchor)
    if anchor not in updates[alone:]:
        bounds, is_regular = _find_bounds(updates[alone:], by_rounds)
        if len(bounds) > FEWEST_BEHIND:
            return tuple(alone + at for at in bounds), is_regular
        if alone >= SHORTEST_ROW:
            return tuple(range(alone + 1)), True
    return tuple(
        at for at, one in enumerate(updates) if one == anchor and (at == 0 or updates[at - 1] != anchor)
    ), False


def _rounds_of(period: Sequence[int]) -> int:
    """How often the optimizer comes up in a period that does so least often; the period's end and its beginning are one row."""
    rows = collections.Counter(one for at, one in enumerate(period) if one != period[at - 1])
    return min(rows.values())


def _is_one_behind_the_other(updates: Sequence[int]) -> bool:
    """Whether one of two optimizers or more trains at a time: its updates stand in rows that are too long for a round.

    A single row of each is enough where none is so short that it may be the end of a round.
    """
    rows = [len(tuple(row)) for _, row in itertools.groupby(updates)]
    shortest = LONGEST // 2 if len(rows) > len(set(updates)) else SHORTEST_ROW
    return statistics.median_low(rows[:-1]) >= shortest  # the last one may have been ended early


def _repeats_from(updates: Sequence[int], period: int) -> int:
    """The first place from which on each update is the same as the one a period later, as far as there is one."""
    at = len(updates) - period
    while at > 0 and updates[at - 1] == updates[at - 1 + period]:
        at -= 1
    return at


def _offset(updates: Sequence[int], begin: int, period: int) -> int:
    """How far behind `begin` a step starts: where the optimizer comes up with which the whole sequence began."""
    window = updates[begin : begin + period]
    starts = [at for at in range(period) if window[at] == updates[0] and window[at - 1] != updates[0]]
    return starts[0] if starts and begin else 0
