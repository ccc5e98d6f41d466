"""What tells the ranks of one training apart: who comes late, how far loads differ, what communication costs. Pure.

A collective makes all ranks' steps equally long, so what is compared is each rank's *own* time: its step without the time in
collectives, and without that in which it waited for a core that other programs held. Step by step, as ranks make the same
ones: noise of the machine that hits all ranks falls out.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfaudit.runs import LateRank

WARM_UP = 4  # updates that do not count: buckets are made anew, allocators filled, the first batch waited for
FEWEST = 20  # updates that all ranks have made, for anything to be said
# Consecutive steps are alike, so the interval is over medians of this many stretches of steps, with Student's t; the quantile is
# that of 99.5 % for 9 degrees of freedom, because each rank of a job is looked at.
STRETCHES = 10
T_995 = 3.690
# Chosen, as the other thresholds here are where nothing else is said. Of a step: the lower end of the interval, from which on
# a rank is late; a smaller delay is not worth a change.
LATE_SHARE = 0.03
LATE_SECONDS = 0.0005
# Of the time in which a rank computes. One core may be so much slower than another for a whole run, by its clock, or by what
# other programs and, on a virtual machine, other guests do with its caches; no interval over the steps of a run has that in it.
# Chosen: the widest of 24 pairs of equal ranks on two shared cores were 18 and 19 % apart (their intervals began at 8 and 0 %).
CORES_DIFFER = 0.15
OFTEN_LAST = 0.75  # of the steps; a rank that is late in fewer is late in turn
# Where a rank idles longest in OFTEN_LAST of the steps. On cores that others use, the time of the same work scatters by more than
# a late rank is late: one that slept for 5 ms a step came last in 73 % of the steps at a load of 20 on two cores.
LAST_OF_IDLE = 0.5
# Of the steps, from which on a rank that idles longest is named though it hardly comes last: it computes faster than another
# one, by no more than cores differ by, and so makes up for its idling here. Chosen: one of ten runs in which a rank slept for
# 5 ms a step was such a one.
OFTEN_IDLE = 0.9
IMBALANCE = 0.1  # of a step, that ranks wait on average for whichever has most to do
CAUSED = 0.5  # correlation of own times with what batches hold, from which on the batches are the cause
EXPOSED = 0.3  # of a step, that communication takes which DistributedDataParallel has not hidden
BY_HAND = 0.05  # of a step, for collectives that the script itself calls


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The last updates of a rank, in order. first: the number of the first of them.

    seconds: of each; waited: of these in collectives; in_buckets: of those at the end of backward passes; elements: of what its
    batches hold; held: of the same with their padding, () where there is none; queued, computed: seconds outside of collectives
    in which it waited for a core that others held, and in which it was on one, or waited for workers that were. has_threads: it
    computes together with other threads, whose cores may be the slow ones.
    """

    rank: int
    first: int
    seconds: Sequence[float]
    waited: Sequence[float]
    in_buckets: Sequence[float]
    elements: Sequence[float]
    queued: Sequence[float]
    computed: Sequence[float]
    held: Sequence[float] = ()
    has_threads: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the steps of all ranks tell. updates: how many were compared.

    exposed: share of a step that the rank which waits least is in collectives; in_buckets: of it in those of
    DistributedDataParallel. imbalance: see `Run`; in_turn: the same without that by which late ranks are late in each step.
    batches_explain: whether what batches hold goes with the time they take, by
    rank and step; None where no batch was seen. batch_spread: see `spread_of_batches`.
    """

    updates: int = 0
    stragglers: tuple[LateRank, ...] = ()
    exposed: float | None = None
    in_buckets: float = 0.0
    imbalance: float | None = None
    in_turn: float | None = None
    is_imbalanced: bool = False
    batches_explain: bool | None = None
    batch_spread: float | None = None


def compare(ranks: Sequence[RankSteps]) -> Comparison:
    """Compare the updates that all ranks have made; nothing is said of fewer than FEWEST, or of a single rank."""
    if len(ranks) < 2:
        return Comparison()
    first = max(WARM_UP, *(each.first for each in ranks))
    behind = min(each.first + len(each.seconds) for each in ranks)
    if behind - first < FEWEST:
        return Comparison(max(0, behind - first))
    seconds, waited, buckets, elements, queued, computed, held = (
        [list(row[first - each.first : behind - each.first]) for each, row in rows]
        for rows in (
            [(each, each.seconds) for each in ranks],
            [(each, each.waited) for each in ranks],
            [(each, each.in_buckets) for each in ranks],
            [(each, each.elements) for each in ranks],
            [(each, each.queued) for each in ranks],
            [(each, each.computed) for each in ranks],
            [(each, each.held or each.elements) for each in ranks],
        )
    )
    own = [
        [whole - wait - queue for whole, wait, queue in zip(*rows, strict=True)]
        for rows in zip(seconds, waited, queued, strict=True)
    ]
    step = statistics.median(statistics.fmean(column) for column in zip(*seconds, strict=True))
    if step <= 0:
        return Comparison(behind - first)
    least = [min(column) for column in zip(*waited, strict=True)]
    # Of a step as it is where nobody else uses the cores: the wait for one, on this rank or the others, is no load of theirs.
    alone = statistics.median(max(mine) + wait for mine, wait in zip(zip(*own, strict=True), least, strict=True))
    shown = _Shown(own, computed, alone, any(each.has_threads for each in ranks))
    stragglers = (
        tuple(late for number, each in enumerate(ranks) if (late := _late(number, each.rank, shown)))
        or _late_together([each.rank for each in ranks], shown)
        or tuple(late for number, each in enumerate(ranks) if (late := _idle(number, each.rank, shown)))
    )
    least_in_buckets = [min(column) for column in zip(*buckets, strict=True)]
    # Without that by which late ranks are late in each step, so that one of them does not hide that others are late in turn.
    late_by = {late.rank: late.seconds for late in stragglers}
    in_turn = [[mine - late_by.get(each.rank, 0.0) for mine in row] for each, row in zip(ranks, own, strict=True)]
    imbalance_in_turn = _imbalance(in_turn, alone)
    return Comparison(
        behind - first,
        stragglers,
        statistics.median(least) / step,
        statistics.median(least_in_buckets) / step,
        _imbalance(own, alone),
        imbalance_in_turn,
        # A late rank whose delay varies is early beside the mean of its delays: who comes last is told by what was seen.
        imbalance_in_turn >= IMBALANCE and _is_in_turn(own),
        _explains(in_turn, elements),
        spread_of_batches(held),
    )


def spread_of_batches(held: Sequence[Sequence[float]]) -> float | None:
    """What the fullest batch of a step holds, padding included, over the mean of all ranks; the mean over the steps.

    held: of each rank, step by step. None where no batch was seen.
    """
    spreads = [max(step) / statistics.fmean(step) for step in zip(*held, strict=True) if any(step)]
    return statistics.fmean(spreads) if spreads else None


@dataclass(frozen=True, slots=True)
class _Shown:
    """What ranks are judged by, rank by rank and step by step: seconds of their own, and of these on a core.

    step: seconds of one where nobody else uses the cores. has_threads: see `RankSteps`.
    """

    own: Sequence[Sequence[float]]
    computed: Sequence[Sequence[float]]
    step: float
    has_threads: bool

    @property
    def idle(self) -> list[list[float]]:
        """Seconds in which a rank's thread does not compute: it sleeps, reads or waits, which no slow core of it makes longer."""
        return [
            [mine - busy for mine, busy in zip(*rows, strict=True)]
            for rows in zip(self.own, self.computed, strict=True)
        ]

    @property
    def least(self) -> float:
        """Seconds from which on a rank is late."""
        return max(LATE_SHARE * self.step, LATE_SECONDS)

    def slower_core(self, *numbers: int) -> float:
        """Seconds that the same work may take longer on these ranks' cores than on the others'."""
        work = self.own if self.has_threads else self.computed
        others = [row for number, row in enumerate(work) if number not in numbers]
        return CORES_DIFFER * statistics.median(statistics.fmean(column) for column in zip(*others, strict=True))


def _late(number: int, rank: int, shown: _Shown) -> LateRank | None:
    """The rank as one that the others wait for; None where it is not shown to be one."""
    last, (middle, half) = _share_last(number, shown.own), _interval(_excess(number, shown.own))
    late = LateRank(rank, last, middle, middle - half, middle + half)
    if last >= OFTEN_LAST and late.low >= shown.least + shown.slower_core(number):
        return late
    if shown.has_threads or last < LAST_OF_IDLE or middle < shown.least:
        return None
    if last < OFTEN_LAST and _share_last(number, shown.idle) < OFTEN_LAST:
        return None
    middle, half = _interval(_excess(number, shown.idle))
    if middle - half < shown.least:
        return None
    return late if late.low >= shown.least else LateRank(rank, last, middle, middle - half, middle + half, True)


def _late_together(ranks: Sequence[int], shown: _Shown) -> tuple[LateRank, ...]:
    """Several ranks of which each is late beside those that are not, as on a slow node; nothing where it is not clear which.

    Each of them comes last in its share of the steps, and one of them in OFTEN_LAST.
    """
    middle = [statistics.median(row) for row in shown.own]
    order = sorted(range(len(ranks)), key=middle.__getitem__)
    behind = max(range(1, len(order)), key=lambda place: middle[order[place]] - middle[order[place - 1]])
    early, late = order[:behind], order[behind:]
    if not 1 < len(late) <= len(early):
        return ()
    steps = list(zip(*shown.own, strict=True))
    is_last = [max(range(len(step)), key=step.__getitem__) in late for step in steps]
    if statistics.fmean(is_last) < OFTEN_LAST:
        return ()
    found = []
    for number in late:
        excess = [step[number] - statistics.fmean(step[other] for other in early) for step in steps]
        mean, half = _interval(excess)
        if mean - half < shown.least + shown.slower_core(*late):
            return ()
        found.append(LateRank(ranks[number], _share_last(number, shown.own), mean, mean - half, mean + half))
    return tuple(sorted(found, key=lambda each: each.rank))


def _idle(number: int, rank: int, shown: _Shown) -> LateRank | None:
    """The rank as one that idles longest where another one comes last, perhaps for its slower core; None where it is not."""
    if shown.has_threads or _share_last(number, shown.idle) < OFTEN_IDLE:
        return None
    middle, half = _interval(_excess(number, shown.idle))
    mine, *others = (statistics.median(row) for row in (shown.computed[number], *_without(number, shown.computed)))
    if middle - half < shown.least or not mine < max(others) <= (1 + CORES_DIFFER) * mine:
        return None
    return LateRank(rank, _share_last(number, shown.own), middle, middle - half, middle + half, True)


def _without(number: int, rows: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    return [row for other, row in enumerate(rows) if other != number]


def _share_last(number: int, rows: Sequence[Sequence[float]]) -> float:
    """In which share of the steps one row is the longest."""
    others = _without(number, rows)
    return statistics.fmean(mine >= max(column) for mine, *column in zip(rows[number], *others, strict=True))


def _excess(number: int, rows: Sequence[Sequence[float]]) -> list[float]:
    """How far one row lies above the mean of the others, step by step."""
    others = _without(number, rows)
    return [mine - statistics.fmean(column) for mine, *column in zip(rows[number], *others, strict=True)]


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean of the medians of stretches, and half the width of its interval."""
    medians = [statistics.median(part) for part in _stretches(values)]
    return statistics.fmean(medians), T_995 * statistics.stdev(medians) / math.sqrt(len(medians))


def _stretches(values: Sequence[float]) -> list[Sequence[float]]:
    bounds = [round(number * len(values) / STRETCHES) for number in range(STRETCHES + 1)]
    return [values[first:behind] for first, behind in itertools.pairwise(bounds)]


def _imbalance(own: Sequence[Sequence[float]], step: float) -> float:
    """How far the last rank's own time lies above the mean of all, as a share of a step."""
    spread = [max(column) - statistics.fmean(column) for column in zip(*own, strict=True)]
    return _mean_without_largest(spread) / step if step > 0 else 0.0


def _mean_without_largest(values: Sequence[float]) -> float:
    """The mean without the largest tenth, which a single long step of the machine may make. A median would not see loads that
    differ in less than half of the steps.
    """
    kept = sorted(values)[: math.ceil(0.9 * len(values))]
    return statistics.fmean(kept)


def _is_in_turn(own: Sequence[Sequence[float]]) -> bool:
    """Whether at least two ranks make the others wait: one alone would be a straggler, or noise that hits it alone.

    Without the largest tenth, as in `_mean_without_largest`.
    """
    lasts = [max(range(len(column)), key=column.__getitem__) for column in zip(*own, strict=True)]
    behind = [
        column[last] - statistics.fmean(column) for column, last in zip(zip(*own, strict=True), lasts, strict=True)
    ]
    kept = sorted(range(len(behind)), key=behind.__getitem__)[: math.ceil(0.9 * len(behind))]
    caused = [0.0] * len(own)  # seconds that each rank is behind the mean of all, in the steps in which it comes last
    for step in kept:
        caused[lasts[step]] += behind[step]
    return sum(each >= (1 - OFTEN_LAST) / 2 * sum(caused) for each in caused) > 1


def _explains(own: Sequence[Sequence[float]], elements: Sequence[Sequence[float]]) -> bool | None:
    """Whether a rank takes longer in the steps in which its batches hold more than the others'; None without batches."""
    if not any(map(any, elements)):
        return None
    more_time, more_elements = [], []
    for times, sizes in zip(zip(*own, strict=True), zip(*elements, strict=True), strict=True):
        more_time += [each - statistics.fmean(times) for each in times]
        more_elements += [each - statistics.fmean(sizes) for each in sizes]
    if len(set(more_elements)) < 2 or len(set(more_time)) < 2:
        return False
    order = sorted(range(len(more_time)), key=more_time.__getitem__)  # places, so that no outlier decides
    places = [0] * len(order)
    for place, index in enumerate(order):
        places[index] = place
    return statistics.correlation(places, more_elements) >= CAUSED
