"""In which calls the host waited for a device, and which of these waits are for work that is not in the file."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from perfaudit.trace import kernel_names, runtime_names
from perfaudit.trace.device_work import DeviceWork
from perfaudit.trace.intervals import Intervals, Total, clip, union
from perfaudit.trace.recording import MEMORY

SHORT_CALL = 20.0  # microseconds; a copy that returns sooner has waited for nothing
# A wait on a device that has nothing to do returns at once. One that takes longer waits for work that is not in the file.
UNSEEN = 1000.0  # microseconds
MOST_SEEN = 0.05  # of such a wait in which the device works, on what ends it
SLOWEST_COPY = (
    100.0  # bytes a microsecond, for copies from pageable memory, which the host reads first: it may be swapped out
)


class Waits:
    """Rows of calls in which a thread that trains waits for the device, in the order of start.

    known: for work that is in the file. unseen: where the host waits for other work, so that the device is idle in the record
    alone.
    """

    def __init__(self, device: DeviceWork) -> None:
        self._device = device
        unseen = self._for_unseen()
        calls = device.recording.calls
        self.known = [row for row in self._all if row not in unseen]
        self.unseen: Intervals = clip(
            union((calls.start[row], calls.end[row]) for row in unseen), device.start, device.end
        )

    def _for_unseen(self) -> set[int]:
        device = self._device
        calls, work = device.recording.calls, device.recording.work
        busy = Total(self._busy_of_all())
        copied: Counter[int] = Counter()
        for row, call in device.launches.of.items():
            if work.kind[row] == MEMORY and kernel_names.direction_of(device.name_of(row)) == "HtoD":
                copied[call] += max(0, work.bytes[row])
        found = set()
        for row in self._all:
            start, end = calls.start[row], calls.end[row]
            at_work = busy.between(start - SHORT_CALL, end)
            if end - start - at_work > UNSEEN + copied[row] / SLOWEST_COPY and at_work < MOST_SEEN * (end - start):
                found.add(row)
        return found

    def _busy_of_all(self) -> Intervals:
        """Where any device of the file works: the host may wait for another one."""
        work = self._device.recording.work
        if len(set(work.device)) == 1:
            return self._device.busy
        return union(zip(work.start, work.end, strict=True))

    @cached_property
    def _all(self) -> list[int]:
        device = self._device
        calls, names = device.recording.calls, device.recording.names
        work = device.recording.work
        blocking = {
            call
            for row, call in device.launches.of.items()
            if work.kind[row] == MEMORY
            and work.device[row] == device.device
            and calls.thread[call] in device.threads
            and calls.end[call] - calls.start[call] > SHORT_CALL
            and calls.end[call] >= work.start[row]
            and runtime_names.call_of(names[calls.name[call]]) == "copy"
            and kernel_names.direction_of(device.name_of(row)) in ("HtoD", "DtoH")
            and min(device.start, device.host_start) < calls.end[call]
            and calls.start[call] < device.end
        }
        return sorted({*device.calls("sync"), *blocking} - self._of_profiler(), key=calls.start.__getitem__)

    def _of_profiler(self) -> set[int]:
        """The wait for the device with which a profiler ends: the last call of its thread, behind the last step."""
        calls, names = self._device.recording.calls, self._device.recording.names
        last: dict[int, int] = {}
        for row, thread in enumerate(calls.thread):
            if thread not in last or calls.start[row] >= calls.start[last[thread]]:
                last[thread] = row
        after = self._device.host_end if self._device.steps else float("-inf")
        return {
            row
            for row in last.values()
            if names[calls.name[row]].endswith("DeviceSynchronize") and calls.start[row] >= after
        }
