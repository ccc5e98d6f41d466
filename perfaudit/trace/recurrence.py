"""Whether steps have something again and again: what happens once is no time of a step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.idle import Idle
from perfaudit.trace.words import a_step, milliseconds

LITTLE = 0.1  # of what the step has that has most; a step with less does not have it
FEW = 1 / 3  # of the steps


def steps_with(view: DeviceView, stretches: Iterable[tuple[float, float]]) -> list[int]:
    """Indices of the steps in which these stretches lie, but for those with little of them; [] where no steps are marked."""
    starts = [step.start for step in view.steps]
    spent = [0.0] * len(starts)
    for start, end in stretches if starts else ():
        spent[max(0, bisect_right(starts, (start + end) / 2) - 1)] += end - start
    return [index for index, microseconds in enumerate(spent) if microseconds > LITTLE * max(spent)]


def is_rare(view: DeviceView, idle: Iterable[Idle]) -> bool:
    """Whether few steps have these stretches, of several."""
    number = len(steps_with(view, ((one.start, one.end) for one in idle)))
    return view.step_times.number > 1 and (number == 1 or number <= FEW * view.step_times.number)


def time_in_words(view: DeviceView, idle: list[Idle]) -> str:
    """How long these stretches are: "12.3 ms a step", or "35 ms on 2 of 8 steps" where few have them.

    "1.2 s in all" where no steps are marked.
    """
    microseconds = sum(one.end - one.start for one in idle)
    if not is_rare(view, idle):
        return a_step(view, microseconds)
    number = len(steps_with(view, ((one.start, one.end) for one in idle)))
    return f"{milliseconds(microseconds)} on {number} of {view.step_times.number} steps"
