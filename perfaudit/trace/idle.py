"""Why a device was idle: each instant without work has one cause, from what the host did then.

Between two pieces of work the device waits for the next one. Who looks at the call that handed that over sees why it came late:

1. `data`: a thread that trains waits for a batch.
2. `sync`: the host has waited until the device had done all it was given (the wait began while the device worked), so
that nothing was queued: until the next piece of work arrives, the device is idle because of that wait.
3. `allocation`: the host takes or gives back memory, or has waited for the device to do so.
4. `launch`: the host is on its way to the next launch, from call to call of the runtime, and hands the next piece over too late.
5. `other`: none of these: the host does something else before it goes on to launch, or the work was queued and the device itself
was late. So is waiting for work that is not in the file, which goes before `sync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perfaudit.trace.intervals import ByTime, Intervals, difference, intersection, union

CAUSES = ("data", "sync", "allocation", "launch", "other")
# microseconds from the return of a launch to the kernel's start on an idle device: 4 to 8 in traces of V100 to H100
LATENCY = 8.0
BEGAN_BUSY = 1.0  # microseconds by which clocks of host and device may differ where a wait begins as the work ends


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch in which a device is idle. launch: when the call that ends it began and returned, thread: that made it;
    None where
    that is not known.
    """

    start: float
    end: float
    launch: tuple[float, float] | None
    thread: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """What the threads that train did. waits, allocations: calls in the order of their start; the others are sets of instants.

    waits: for the device. active: in calls of the runtime and on the way from one to the next. unseen: waits for work of the
    device that is not in the file.
    """

    data: Intervals
    waits: Sequence[tuple[float, float]]
    allocations: Sequence[tuple[float, float]]
    active: Intervals
    unseen: Intervals = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Idle:
    """A stretch of one cause, and the gap it lies in."""

    start: float
    end: float
    cause: str
    gap: int


def causes_of(gaps: Sequence[Gap], host: Host) -> list[Idle]:
    """The stretches of all gaps, which add up to them, in the order of time within each gap's causes."""
    waits, allocations = _Calls(host.waits), _Calls(host.allocations)
    data, active, unseen = _Calls(host.data), _Calls(host.active), _Calls(host.unseen)
    found: list[Idle] = []
    for number, gap in enumerate(gaps):
        left: Intervals = [(gap.start, gap.end)]
        for cause, taken in (
            ("data", data.within(gap.start, gap.end)),
            ("other", unseen.within(gap.start, gap.end)),
            ("sync", _shadow(gap, waits)),
            ("allocation", _shadow(gap, allocations)),
            ("launch", _launching(gap, active)),
        ):
            if not taken:
                continue
            found += [Idle(start, end, cause, number) for start, end in intersection(left, taken)]
            left = difference(left, taken)
            if not left:
                break
        found += [Idle(start, end, "other", number) for start, end in left]
    return found


def _shadow(gap: Gap, calls: _Calls) -> Intervals:
    """Where these calls keep the device idle: to the gap's end after one that began while the device worked, else while
    they last.
    """
    inside = calls.touching(gap.start, gap.end)
    taken = [(max(start, gap.start), min(end, gap.end)) for start, end in inside]
    for start, end in inside:
        handed_over_later = gap.launch is None or gap.launch[1] >= end - BEGAN_BUSY
        if start <= gap.start + BEGAN_BUSY and end >= gap.start - BEGAN_BUSY and handed_over_later:
            return [(gap.start, gap.end)]
    return _merge(taken)


def _launching(gap: Gap, active: _Calls) -> Intervals:
    """Where the host works towards the next piece of work; nothing where that was queued before the gap began."""
    if gap.launch is None:
        return active.within(gap.start, gap.end)
    begun, returned = gap.launch
    if returned <= gap.start and gap.end - returned > LATENCY:
        return []
    busy = active.within(gap.start, gap.end)
    return _merge([*busy, (max(gap.start, min(begun, gap.end)), gap.end)])


def _merge(pairs: list[tuple[float, float]]) -> Intervals:
    return union(pairs) if len(pairs) > 1 else [pair for pair in pairs if pair[1] > pair[0]]


class _Calls:
    """Stretches of the host around a gap."""

    def __init__(self, pairs: Sequence[tuple[float, float]]) -> None:
        self._pairs = pairs
        self._by_time = ByTime(pairs)

    def touching(self, start: float, end: float) -> list[tuple[float, float]]:
        """Those that overlap the stretch, or touch its start within BEGAN_BUSY."""
        return [self._pairs[index] for index in self._by_time.touching(start - BEGAN_BUSY, end)]

    def within(self, start: float, end: float) -> Intervals:
        """The instants of them in the stretch, of pairs that do not overlap."""
        return [
            (max(first, start), min(last, end))
            for first, last in self.touching(start, end)
            if min(last, end) > max(first, start)
        ]


def microseconds_by_cause(stretches: Sequence[Idle]) -> dict[str, float]:
    """Microseconds of each cause; all causes are there."""
    found = dict.fromkeys(CAUSES, 0.0)
    for stretch in stretches:
        found[stretch.cause] += stretch.end - stretch.start
    return found


def longest_first(stretches: Sequence[Idle], cause: str) -> list[Idle]:
    """The stretches of one cause, the longest first."""
    return sorted((one for one in stretches if one.cause == cause), key=lambda one: one.start - one.end)
