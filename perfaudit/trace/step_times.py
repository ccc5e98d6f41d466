"""How long a step takes a device, and how often something happens in one: what every figure "a step" is divided by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate

from perfaudit.trace.device_work import DeviceWork


class StepTimes:
    """The steps of a window as its device has them.

    follows_work: the window begins where the work of the step before it ended, so that it holds its first step from the start.
    """

    def __init__(self, device: DeviceWork, follows_work: bool) -> None:
        self._device = device
        self._follows_work = follows_work

    @cached_property
    def ends(self) -> list[float]:
        """When the work of each step and of all before it has ended; the step's start where it launched nothing."""
        ends = [step.start for step in self._device.steps]
        for row in self._device.rows:
            if (step := self._step_of(row)) is not None and step >= 0:
                ends[step] = max(ends[step], self._device.recording.work.end[row])
        return list(accumulate(ends, max))

    @cached_property
    def with_work(self) -> list[int]:
        """Indices of the steps that launched something, as far as the file tells."""
        launched = {step for row in self._device.rows if (step := self._step_of(row)) is not None}
        return sorted(launched - {-1})

    @cached_property
    def number(self) -> int:
        """How many steps there are, without marks at both ends that hold no work: a last mark may hold nothing but the end of
        the profile. 0 where none is marked.
        """
        if not self.with_work:
            return len(self._device.steps)
        return self.with_work[-1] - self.with_work[0] + 1

    @cached_property
    def microseconds(self) -> float | None:
        """Of one step: from the end of the first step's work to that of the last one's, since the host may run ahead; of a
        single step, all of the window. None where none is marked.
        """
        if not self._device.steps:
            return None
        worked = self.with_work
        if self._follows_work and worked:
            return (self.ends[worked[-1]] - self._device.start) / (worked[-1] + 1)
        if len(worked) < 2:
            return self._device.length / len(self._device.steps)
        return (self.ends[worked[-1]] - self.ends[worked[0]]) / (worked[-1] - worked[0])

    def in_one(self, microseconds: float) -> float | None:
        """A time of the window as one of a step: the same share of a step. None where no step is marked."""
        step = self.microseconds
        return None if step is None else microseconds / self._device.length * step

    def launched_in_one(self, rows: Iterable[int]) -> float:
        """How many of these pieces of work a step launches; what earlier steps left in the queue does not count."""
        device = self._device
        calls, of = device.recording.calls, device.launches.of
        known = unknown = 0
        for row in rows:
            call = of.get(row)
            unknown += call is None
            known += call is not None and device.host_start <= calls.start[call] <= device.host_end
        return known / max(1, self.number) + (self.in_one(unknown) or 0.0)

    def called_in_one(self, rows: Iterable[int]) -> float:
        """How many of these calls a step makes."""
        starts = self._device.recording.calls.start
        inside = sum(self._device.host_start <= starts[row] <= self._device.host_end for row in rows)
        return inside / max(1, self.number)

    def _step_of(self, row: int) -> int | None:
        """The index of the step that launched a piece of work, -1 for before the first; None where that is not known."""
        call = self._device.launches.of.get(row)
        return None if call is None else bisect_right(self._starts, self._device.recording.calls.start[call]) - 1

    @cached_property
    def _starts(self) -> list[float]:
        return [step.start for step in self._device.steps]
