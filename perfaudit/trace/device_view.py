"""What one device did in the window of a trace: busy by kind of work, idle by cause, and the calls that handed the work over.

The window goes from the start of the first marked step to the end of the last one, or of the work that it launched, whichever
comes later; without marks from the first piece of work to the end of the last. Times are microseconds since the recording's base.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from perfaudit.trace import kernel_names, runtime_names
from perfaudit.trace.host_threads import Instant, around, data_waits, main_thread
from perfaudit.trace.idle import Gap, Host, Idle, causes_of
from perfaudit.trace.intervals import Intervals, Total, clip, difference, total, union, without_short_holes
from perfaudit.trace.launches import Launches, launches_of
from perfaudit.trace.recording import COMMUNICATION, COMPUTE, MEMORY, Recording
from perfaudit.trace.steps import Step
from perfaudit.trace.warm_up import LONG_CALL

PYTHON_BETWEEN = 1000.0  # microseconds of Python between two operators that still count as work towards the next launch
MANY_LATER = 15  # calls like those of a set-up in the second half of the work, from which on they are no set-up
OF_SET_UP = 0.3  # of the time until the end of a set-up that its calls take
MIN_LAUNCHES = 0.01  # of a device's launches, from which on a thread counts as one that trains
SAMPLED = 3.0  # ids for each operator that is there; whole traces have 1.0 to 1.1, as each operator takes the next
SHORT_CALL = 20.0  # microseconds; a copy that returns sooner has waited for nothing
# A wait on a device that has nothing to do returns at once. One that takes longer waits for work that is not in the file.
UNSEEN = 1000.0  # microseconds
MOST_SEEN = 0.05  # of such a wait in which the device works, on what ends it
SLOWEST_COPY = (
    100.0  # bytes a microsecond, for copies from pageable memory, which the host reads first: it may be swapped out
)


@dataclass(eq=False)
class DeviceView:
    """One device of one recording, in its window. rows: its work in the window, in the order of start."""

    recording: Recording
    device: int
    steps: list[Step]
    launches: Launches
    start: float
    end: float
    host_end: float  # of the last step, or of the window
    rows: list[int]
    is_excerpt: bool = False  # the window begins later than the file, in which the host waits for work of before

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
        found: dict[str, list[int]] = {}
        for row in range(len(calls)):
            if calls.thread[row] in self.threads and calls.end[row] > self.start and calls.start[row] < self.end:
                found.setdefault(kinds[calls.name[row]], []).append(row)
        for rows in found.values():
            rows.sort(key=calls.start.__getitem__)
        return found

    @cached_property
    def waits(self) -> list[int]:
        """Rows of calls in which the host waits for work of the device that is in the file, in the order of start:
        synchronisations, and copies that block.
        """
        unseen = set(self._waits_for_unseen)
        return [row for row in self._all_waits if row not in unseen]

    @cached_property
    def unseen(self) -> Intervals:
        """Where the host waits for work that is not in the file: the device is idle in the record alone."""
        calls = self.recording.calls
        waits = union((calls.start[row], calls.end[row]) for row in self._waits_for_unseen)
        return clip(waits, self.start, self.end)

    @cached_property
    def _waits_for_unseen(self) -> list[int]:
        calls, work = self.recording.calls, self.recording.work
        busy = Total(self._busy_of_all)
        copied: Counter[int] = Counter()
        for row, call in self.launches.of.items():
            if work.kind[row] == MEMORY and kernel_names.direction_of(self.recording.names[work.name[row]]) == "HtoD":
                copied[call] += max(0, work.bytes[row])
        found = []
        for row in self._all_waits:
            start, end = calls.start[row], calls.end[row]
            at_work = busy.between(start - SHORT_CALL, end)
            if end - start - at_work > UNSEEN + copied[row] / SLOWEST_COPY and at_work < MOST_SEEN * (end - start):
                found.append(row)
        return found

    @property
    def _busy_of_all(self) -> Intervals:
        """Where any device of the file works: the host may wait for another one."""
        work = self.recording.work
        if len(set(work.device)) == 1:
            return self.busy
        return union(zip(work.start, work.end, strict=True))

    @cached_property
    def _all_waits(self) -> list[int]:
        calls, work = self.recording.calls, self.recording.work
        blocking = {
            call
            for row, call in self.launches.of.items()
            if work.kind[row] == MEMORY
            and work.device[row] == self.device
            and calls.thread[call] in self.threads
            and calls.end[call] - calls.start[call] > SHORT_CALL
            and calls.end[call] >= work.start[row]
            and runtime_names.call_of(self.recording.names[calls.name[call]]) == "copy"
            and kernel_names.direction_of(self.recording.names[work.name[row]]) in ("HtoD", "DtoH")
            and self.start < calls.end[call]
            and calls.start[call] < self.end
        }
        return sorted({*self.calls("sync"), *blocking} - self._of_profiler, key=calls.start.__getitem__)

    @cached_property
    def _of_profiler(self) -> set[int]:
        """The wait for the device with which a profiler ends: the last call of its thread."""
        calls, names = self.recording.calls, self.recording.names
        last: dict[int, int] = {}
        for row, thread in enumerate(calls.thread):
            if thread not in last or calls.start[row] >= calls.start[last[thread]]:
                last[thread] = row
        return {row for row in last.values() if names[calls.name[row]].endswith("DeviceSynchronize")}

    @cached_property
    def host(self) -> Host:
        """What its threads did."""
        calls = self.recording.calls
        return Host(
            data=clip(data_waits(self.recording, self.threads), self.start, self.end),
            waits=[(calls.start[row], calls.end[row]) for row in self.waits],
            allocations=[(calls.start[row], calls.end[row]) for row in self.calls("allocation")],
            active=self._active(),
            unseen=self.unseen,
        )

    def _active(self) -> Intervals:
        pairs: list[tuple[float, float]] = []
        for spans in (self.recording.calls, self.recording.operators):
            starts, ends, threads = spans.start, spans.end, spans.thread
            pairs += [
                (starts[row], ends[row])
                for row in range(len(spans))
                if threads[row] in self.threads and ends[row] > self.start and starts[row] < self.end
            ]
        return without_short_holes(union(pairs), PYTHON_BETWEEN)

    @cached_property
    def gaps(self) -> list[Gap]:
        """Where it is idle, in the order of time."""
        work, calls = self.recording.work, self.recording.calls
        found: list[Gap] = []
        reached = self.start
        for row in self.rows:
            start = work.start[row]
            if start > reached:
                call = self.launches.of.get(row)
                launch = None if call is None else (calls.start[call], calls.end[call])
                found.append(Gap(reached, start, launch, None if call is None else calls.thread[call]))
            reached = max(reached, work.end[row])
        if reached < self.end:
            found.append(Gap(reached, self.end, None))
        return found

    @cached_property
    def idle(self) -> list[Idle]:
        """The same by cause; "other" where most events are not in the file, so that what the host did is not known."""
        if self.recording.spread_of_ids > SAMPLED:
            return [Idle(gap.start, gap.end, "other", number) for number, gap in enumerate(self.gaps)]
        return causes_of(self.gaps, self.host)

    @cached_property
    def captures(self) -> Intervals:
        """Where a CUDA graph is captured: its kernels do not run, and what the host does then belongs to the program's start."""
        calls, names = self.recording.calls, self.recording.names
        found = []
        begun: float | None = None
        for row in self.calls("other"):
            name = names[calls.name[row]]
            if name.endswith("StreamBeginCapture"):
                begun = calls.start[row]
            elif name.endswith("StreamEndCapture") and begun is not None:
                found.append((begun, calls.end[row]))
                begun = None
        return union(found)

    @cached_property
    def step_ends(self) -> list[float]:
        """When the work of each step and of all before it has ended; the step's start where it launched nothing."""
        starts = [step.start for step in self.steps]
        ends = list(starts)
        calls, work = self.recording.calls, self.recording.work
        for row in self.rows:
            call = self.launches.of.get(row)
            if call is not None and (step := bisect_right(starts, calls.start[call]) - 1) >= 0:
                ends[step] = max(ends[step], work.end[row])
        return list(accumulate(ends, max))

    @cached_property
    def steps_with_work(self) -> list[int]:
        """Indices of the steps that launched something, as far as the file tells."""
        starts = [step.start for step in self.steps]
        calls = self.recording.calls
        launched = {
            bisect_right(starts, calls.start[self.launches.of[row]]) - 1 for row in self.rows if row in self.launches.of
        }
        return sorted(launched - {-1})

    @cached_property
    def late_by_itself(self) -> float:
        """Microseconds in long gaps before work that was queued already: the device waited for something that the file lacks."""
        queued = [gap for gap in self.gaps if gap.launch is not None and gap.launch[1] <= gap.start]
        return sum(gap.end - gap.start for gap in queued if gap.end - gap.start >= UNSEEN)

    @cached_property
    def usual_idle(self) -> list[Idle]:
        """The same after the set-up of a trace without steps."""
        return [one for one in self.idle if one.start >= self.set_up_end]

    @cached_property
    def set_up_end(self) -> float:
        """Where a trace without steps has done what a program does once: taken memory, loaded kernels, created streams.

        The last such call of its first half, if these calls are what the device waits for until there. Where about as many come
        later, they belong to the program's usual work.
        """
        calls, of = self.recording.calls, self.launches.of
        rows = self.set_up_calls
        launched = sorted(calls.start[of[row]] for row in self.rows if row in of)
        if self.steps or not rows or not launched:
            return self.start
        middle = launched[len(launched) // 2]
        early = [row for row in rows if calls.start[row] <= middle]
        if len(rows) - len(early) >= MANY_LATER:
            return self.start
        end = self.start
        spent = 0.0
        for row in early:
            spent += calls.end[row] - max(calls.start[row], self.start)
            if spent >= OF_SET_UP * (calls.end[row] - self.start):
                end = max(end, calls.end[row])
        return min(end, self.end)

    @cached_property
    def set_up_calls(self) -> list[int]:
        """Rows of calls that take memory of the device, and of long calls on an idle device, in the order of start."""
        calls, names = self.recording.calls, self.recording.names
        busy = Total(self.busy)
        found = [row for row in self.calls("allocation") if runtime_names.is_device_memory(names[calls.name[row]])]
        for row in (*self.calls("launch"), *self.calls("other")):
            start, end = calls.start[row], calls.end[row]
            if end - start > LONG_CALL and busy.between(start, end) < 0.5 * (end - start):
                found.append(row)
        return sorted(found, key=calls.start.__getitem__)

    @cached_property
    def operations(self) -> dict[int, str]:
        """Which collective each row of communication belongs to, "" for unknown.

        A kernel of sends and receives does not tell what it is part of; its arguments, or the marks around its launch, do.
        """
        work, calls, of = self.recording.work, self.recording.calls, self.launches.of
        rows = [row for row in self.rows if work.kind[row] == COMMUNICATION]
        at = {row: Instant(calls.start[of[row]], calls.thread[of[row]]) for row in rows if row in of}
        marks = [around(spans, at.values()) for spans in (self.recording.annotations, self.recording.operators)]
        found = {}
        for row in rows:
            names = [said.name] if (said := work.collectives.get(row)) is not None else []
            for spans, stacks in zip((self.recording.annotations, self.recording.operators), marks, strict=True):
                if row in at:
                    names += [self.recording.names[spans.name[one]] for one in reversed(stacks[at[row]])]
            names = [name for name in names if name.startswith(("nccl:", "c10d::")) or (names and name == names[0])]
            operations = [kernel_names.operation_of(name) for name in [*names, self.name_of(row)]]
            found[row] = next(
                (one for one in operations if one and one != "send_recv"), next(filter(None, operations), "")
            )
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


def views_of(recording: Recording, steps: list[Step]) -> list[DeviceView]:
    """A view of each device that works at least a hundredth of what the busiest does; [] without work."""
    work = recording.work
    launches = launches_of(recording)
    by_device: dict[int, list[int]] = {}
    for row, device in enumerate(work.device):
        by_device.setdefault(device, []).append(row)
    views = []
    for device, rows in sorted(by_device.items()):
        rows.sort(key=lambda row: (work.start[row], work.end[row]))
        view = _view(recording, device, steps, launches, rows)
        if view is not None:
            views.append(view if steps else _without_beginning(view))
    busiest = max((total(view.busy) for view in views), default=0.0)
    return [view for view in views if total(view.busy) >= busiest / 100]


def _without_beginning(view: DeviceView) -> DeviceView:
    """The view of a file without steps from where its work begins: an excerpt may begin with a wait for work of before."""
    first = next(iter(view.unseen), None)
    if first is None or total(clip(view.busy, view.start, first[0])) > MOST_SEEN * total(view.busy):
        return view
    work = view.recording.work
    rows = [row for row in view.rows if work.end[row] > first[1]]
    if not rows:
        return view
    start = max(first[0], min(work.start[row] for row in rows))
    return DeviceView(
        view.recording, view.device, view.steps, view.launches, start, view.end, view.host_end, rows, is_excerpt=True
    )


def _view(
    recording: Recording, device: int, steps: list[Step], launches: Launches, rows: list[int]
) -> DeviceView | None:
    work, calls = recording.work, recording.calls
    if recording.only is not None:
        first, last = recording.only
        rows = [row for row in rows if work.start[row] < last and work.end[row] > first]
    if not steps:
        if not rows:
            return None
        start, end = work.start[rows[0]], max(work.end[row] for row in rows)
        return DeviceView(recording, device, [], launches, start, end, end, rows) if end > start else None
    start, host_end = steps[0].start, steps[-1].end

    def launched(row: int) -> float:
        call = launches.of.get(row)
        return work.start[row] if call is None else calls.start[call]

    inside = [row for row in rows if launched(row) <= host_end and work.end[row] > start]
    if not inside:
        return None
    end = max(host_end, max(work.end[row] for row in inside))
    return DeviceView(recording, device, steps, launches, start, end, host_end, inside)
