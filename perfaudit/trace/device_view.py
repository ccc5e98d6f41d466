"""One device in its window: busy by kind of work, idle by cause, and what of it belongs to usual steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from perfaudit.trace.device_work import DeviceWork
from perfaudit.trace.host_threads import Instant, around, data_waits
from perfaudit.trace.idle import Gap, Host, Idle, causes_of
from perfaudit.trace.intervals import Intervals, clip, union, without_short_holes
from perfaudit.trace.missing_events import MOSTLY_LOST, SAMPLED, lost_work
from perfaudit.trace.operations import operations_of
from perfaudit.trace.set_up import set_up_end
from perfaudit.trace.step_times import StepTimes
from perfaudit.trace.waits import UNSEEN, Waits
from perfaudit.trace.warm_up import warm_up_steps

PYTHON_BETWEEN = 1000.0  # microseconds between two calls that still count as work towards the next launch


@dataclass(eq=False)
class DeviceView(DeviceWork):
    """One device of one recording, in its window or in the part of it behind a warm-up.

    is_excerpt: the window begins later than the file, in which the host waits for work of before. part_of: the view of the whole
    window, None for that itself.
    """

    is_excerpt: bool = False
    part_of: DeviceView | None = None

    @property
    def whole(self) -> DeviceView:
        """The view of the whole window."""
        return self if self.part_of is None else self.part_of

    @cached_property
    def usual(self) -> DeviceView:
        """The same device behind the warm-up steps or the set-up; itself where it has neither."""
        if self.part_of is not None:
            return self
        worked = self.step_times.with_work
        number = warm_up_steps(self.recording, self.steps[: worked[-1] + 1] if worked else self.steps)
        steps = self.steps[number:]
        if number:
            has_work = number - 1 in self.step_times.with_work
            start = self.step_times.ends[number - 1] if has_work else steps[0].start
        elif self.steps or (start := set_up_end(self)) <= self.start:
            return self
        return DeviceView(
            self.recording,
            self.device,
            steps,
            self.launches,
            start,
            self.end,
            steps[0].start if steps else start,
            self.host_end,
            [row for row in self.rows if self.recording.work.end[row] > start],
            part_of=self,
        )

    @property
    def shares_are_of(self) -> float:
        """Microseconds of which findings tell a share: the usual steps; without marked steps the whole window."""
        return self.length if self.steps else self.whole.length

    @cached_property
    def step_times(self) -> StepTimes:
        """How long its steps take, and how often something happens in one."""
        return StepTimes(self, follows_work=self.part_of is not None)

    @cached_property
    def threads(self) -> frozenset[int]:
        """Host threads that hand work to this device, and the one that runs the steps."""
        return super().threads if self.part_of is None else self.part_of.threads

    @cached_property
    def waits(self) -> list[int]:
        """Rows of calls in which the host waits for work of the device that is in the file, in the order of start:
        synchronisations, and copies that block.
        """
        return self._waits.known

    @property
    def unseen(self) -> Intervals:
        """Where the host waits for work that is not in the file: the device is idle in the record alone."""
        return self._waits.unseen

    @cached_property
    def _waits(self) -> Waits:
        return Waits(self)

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
        """Calls of the runtime, with up to a moment of operators and Python between them, and the operator that makes a call
        behind or before a longer pause. What else the host does in such a pause does not lead to a launch.
        """
        calls = self.recording.calls
        rows = sorted(
            (
                row
                for row in range(len(calls))
                if calls.thread[row] in self.threads and calls.end[row] > self.start and calls.start[row] < self.end
            ),
            key=calls.start.__getitem__,
        )
        found: list[tuple[float, float]] = [(calls.start[row], calls.end[row]) for row in rows]
        beside_pauses: list[Instant] = []
        last = None
        for row in rows:
            if last is None or calls.start[row] - calls.end[last] > PYTHON_BETWEEN:
                beside_pauses += [
                    Instant(calls.start[one], calls.thread[one]) for one in (last, row) if one is not None
                ]
            last = row if last is None or calls.end[row] > calls.end[last] else last
        operators = self.recording.operators
        for stack in around(operators, beside_pauses).values():
            found += [(operators.start[row], operators.end[row]) for row in stack[-1:]]
        return without_short_holes(union(found), PYTHON_BETWEEN)

    @cached_property
    def gaps(self) -> list[Gap]:
        """Where it is idle, in the order of time."""
        work, calls = self.recording.work, self.recording.calls
        found: list[Gap] = []
        reached = self.start
        begun: set[int] = set()  # calls of which work has run: what else a graph holds is handed over already
        for row in self.rows:
            start = work.start[row]
            call = self.launches.of.get(row)
            if start > reached:
                launch = None
                if call is not None:
                    launch = (calls.start[call], calls.start[call] if call in begun else calls.end[call])
                found.append(Gap(reached, start, launch, None if call is None else calls.thread[call]))
            if call is not None:
                begun.add(call)
            reached = max(reached, work.end[row])
        if reached < self.end:
            found.append(Gap(reached, self.end, None))
        return found

    @cached_property
    def lost_work(self) -> float:
        """The share of launches whose work is not in the file."""
        return lost_work(self, self.captures)

    @property
    def is_sample(self) -> bool:
        """Whether so many events are missing that what the host did, or whether the device was idle, is not known."""
        is_cut = "cut-work" in self.recording.notes
        return is_cut or self.recording.spread_of_ids > SAMPLED or self.whole.lost_work > MOSTLY_LOST

    @cached_property
    def idle(self) -> list[Idle]:
        """The same by cause; "other" where most events are not in the file, so that what the host did is not known."""
        if self.is_sample:
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
    def late_by_itself(self) -> float:
        """Microseconds in long gaps before work that was queued already: the device waited for something that the file lacks."""
        queued = [gap for gap in self.gaps if gap.launch is not None and gap.launch[1] <= gap.start]
        return sum(gap.end - gap.start for gap in queued if gap.end - gap.start >= UNSEEN)

    @cached_property
    def operations(self) -> dict[int, str]:
        """Which collective each row of communication belongs to, "" for unknown."""
        return operations_of(self)
