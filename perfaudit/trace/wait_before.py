"""Which wait of the host a stretch of idle time is due to."""

from __future__ import annotations

from bisect import bisect_right

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.idle import BEGAN_BUSY, Idle
from perfaudit.trace.intervals import ByTime


class WaitBefore:
    """The last wait that began before a stretch's gap and lasts into it, else the one inside.

    waits: rows of calls, in the order of their start.
    """

    def __init__(self, view: DeviceView, waits: list[int]) -> None:
        calls = view.recording.calls
        self._gaps = view.gaps
        self._waits = waits
        self._starts = [calls.start[row] for row in waits]
        self._ends = [calls.end[row] for row in waits]
        self._by_time = ByTime([(calls.start[row], calls.end[row]) for row in waits])

    def wait(self, stretch: Idle) -> int:
        """The row of the wait."""
        begun = self._gaps[stretch.gap].start
        around = self._by_time.touching(begun - BEGAN_BUSY, begun + BEGAN_BUSY)
        before = [index for index in around if self._starts[index] <= begun + BEGAN_BUSY]
        if before:
            return self._waits[max(before)]
        inside = [
            one for one in self._by_time.touching(stretch.start, stretch.start) if self._ends[one] > stretch.start
        ]
        if inside:
            return self._waits[max(inside)]
        return self._waits[min(bisect_right(self._starts, stretch.start), len(self._waits) - 1)]
