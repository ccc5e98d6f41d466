"""What one device did in the window of a trace, by kind of work, and the calls of the host that may have to do with it.

Times are microseconds since the recording's base.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from perfaudit.trace import runtime_names
from perfaudit.trace.host_threads import main_thread
from perfaudit.trace.intervals import Intervals, clip, difference, total, union
from perfaudit.trace.launches import Launches
from perfaudit.trace.recording import COMMUNICATION, COMPUTE, MEMORY, Recording
from perfaudit.trace.steps import Step

MIN_LAUNCHES = 0.01  # of a device's launches, from which on a thread counts as one that trains


@dataclass(eq=False)
class DeviceWork:
    """One device of one recording, in a window. rows: its work in the window, in the order of start.

    host_start, host_end: of the steps on the host, or of the window where none is marked.
    """

    recording: Recording
    device: int
    steps: list[Step]
    launches: Launches
    start: float
    end: float
    host_start: float
    host_end: float
    rows: list[int]

    @property
    def length(self) -> float:
        """Microseconds of the window."""
        return self.end - self.start

    @cached_property
    def compute(self) -> Intervals:
        return self._busy(COMPUTE)

    @cached_property
    def communication(self) -> Intervals:
        return self._busy(COMMUNICATION)

    @cached_property
    def memory(self) -> Intervals:
        return self._busy(MEMORY)

    def _busy(self, kind: int) -> Intervals:
        work = self.recording.work
        pairs = ((work.start[row], work.end[row]) for row in self.rows if work.kind[row] == kind)
        return clip(union(pairs), self.start, self.end)

    @cached_property
    def busy(self) -> Intervals:
        """Where the device does anything."""
        return union([*self.compute, *self.communication, *self.memory])

    @cached_property
    def exposed_communication(self) -> Intervals:
        """Where the device communicates and does not compute."""
        return difference(self.communication, self.compute)

    @cached_property
    def exposed_memory(self) -> Intervals:
        """Where it only copies."""
        return difference(difference(self.memory, self.compute), self.communication)

    @cached_property
    def threads(self) -> frozenset[int]:
        """Host threads that hand work to this device, and the one that runs the steps."""
        calls = self.recording.calls
        launching = Counter(calls.thread[self.launches.of[row]] for row in self.rows if row in self.launches.of)
        least = MIN_LAUNCHES * sum(launching.values())
        found = {thread for thread, number in launching.items() if number >= least}
        main = main_thread(self.recording)
        return frozenset(found if main is None else found | {main})

    def calls(self, kind: runtime_names.Call) -> list[int]:
        """Rows of the calls of this kind by threads that train, in the window, in the order of start."""
        return self._calls_by_kind.get(kind, [])

    @cached_property
    def _calls_by_kind(self) -> dict[str, list[int]]:
        calls, names = self.recording.calls, self.recording.names
        kinds = [runtime_names.call_of(name) for name in names]
        start = min(self.start, self.host_start)
        found: dict[str, list[int]] = {}
        for row in range(len(calls)):
            if calls.thread[row] in self.threads and calls.end[row] > start and calls.start[row] < self.end:
                found.setdefault(kinds[calls.name[row]], []).append(row)
        for rows in found.values():
            rows.sort(key=calls.start.__getitem__)
        return found

    @cached_property
    def rows_by_name(self) -> dict[int, list[int]]:
        """Its work in the window by the index of its name."""
        found: dict[int, list[int]] = {}
        for row in self.rows:
            found.setdefault(self.recording.work.name[row], []).append(row)
        return found

    def name_of(self, row: int) -> str:
        """The name of a piece of work."""
        return self.recording.names[self.recording.work.name[row]]

    def microseconds(self, row: int) -> float:
        """How long a piece of work takes."""
        return self.recording.work.end[row] - self.recording.work.start[row]

    def busy_with(self, rows: Iterable[int]) -> float:
        """Microseconds of the window in which the device is busy with these; instants that two share count once."""
        work = self.recording.work
        return total(clip(union((work.start[row], work.end[row]) for row in rows), self.start, self.end))
