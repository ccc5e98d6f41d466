"""The host's way to its launches: where it is on it, and whether that takes longer than what is launched.

Between two waits the host hands work over at its own pace. Where that takes longer than the work itself, the device runs dry
however far the host could run ahead: that stretch is launch-bound. Where it takes less, the device lacks work only until the host
has caught up with the wait before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.intervals import Intervals, Total, clip, difference, union

LONG_LAUNCH = 50.0  # microseconds; a launch that takes longer while the device works waits for room in the queue
AT_WORK = 0.95  # of such a launch in which the device works


@dataclass(frozen=True, slots=True)
class Stretch:
    """What the host does between two waits. own: microseconds of it but for allocations and for room in the queue.

    work: that the device is busy with what is launched in it.
    """

    start: float
    end: float
    own: float
    work: float

    @property
    def is_bound(self) -> bool:
        """Whether launching takes longer than what is launched."""
        return self.own > self.work


class LaunchPath:
    """The stretches of a window between waits for the device or for data, in the order of time."""

    def __init__(self, view: DeviceView) -> None:
        self.stretches = list(_stretches(view))
        self._starts = [one.start for one in self.stretches]

    def at(self, time: float) -> Stretch | None:
        """The stretch that holds an instant of the host, or the one before it."""
        index = bisect_right(self._starts, time) - 1
        return self.stretches[index] if index >= 0 else None

    @property
    def bound_stretches(self) -> list[Stretch]:
        """Those in which launching takes longer than what is launched."""
        return [one for one in self.stretches if one.is_bound]


def _stretches(view: DeviceView) -> Iterator[Stretch]:
    calls, of = view.recording.calls, view.launches.of
    start, end = min(view.start, view.host_start), view.end
    waits = union([*view.host.waits, *view.host.data, *view.unseen])
    parts = difference([(start, end)], clip(waits, start, end))
    starts = [begin for begin, _ in parts]
    launched: list[list[int]] = [[] for _ in parts]
    for row in view.rows:
        if row in of and (part := bisect_right(starts, calls.start[of[row]]) - 1) >= 0:
            launched[part].append(row)
    not_own = Total(union([*view.host.allocations, *_for_room(view)]))
    for (begin, stop), rows in zip(parts, launched, strict=True):
        if rows:
            yield Stretch(begin, stop, stop - begin - not_own.between(begin, stop), view.busy_with(rows))


def _for_room(view: DeviceView) -> Intervals:
    """Launches that wait for room in the queue: the host is far ahead of the device there."""
    calls = view.recording.calls
    busy = Total(view.busy)
    found = []
    for row in (*view.calls("launch"), *view.calls("copy")):
        length = calls.end[row] - calls.start[row]
        if length > LONG_LAUNCH and busy.between(calls.start[row], calls.end[row]) >= AT_WORK * length:
            found.append((calls.start[row], calls.end[row]))
    return found
