"""Whether steps have something again and again: what happens once is no time of a step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.idle import Idle
from perfaudit.trace.words import a_step, milliseconds

LITTLE = 0.1  # of what the step has that has most; a step with less does not have it
FEW = 1 / 3  # of the steps


def steps_with(starts: Sequence[float], stretches: Iterable[tuple[float, float]]) -> list[int]:
    """Indices of the steps in which these stretches lie, but for those with little of them. starts: of the steps."""
    spent = [0.0] * len(starts)
    for start, end in stretches if starts else ():
        spent[max(0, bisect_right(starts, (start + end) / 2) - 1)] += end - start
    return [index for index, microseconds in enumerate(spent) if microseconds > LITTLE * max(spent)]


def are_few(number: int, steps: int) -> bool:
    """Whether so many of several steps are few."""
    return steps > 1 and (number == 1 or number <= FEW * steps)


def is_rare(view: DeviceView, idle: Iterable[Idle]) -> bool:
    """Whether few steps have these stretches."""
    return are_few(_steps_with(view, idle), view.step_times.number)


def time_in_words(view: DeviceView, idle: list[Idle]) -> str:
    """How long these stretches are: "12.3 ms a step", or "35 ms on 2 of 8 steps" where few have them.

    "1.2 s in all" where no steps are marked.
    """
    microseconds = sum(one.end - one.start for one in idle)
    if not is_rare(view, idle):
        return a_step(view, microseconds)
    return f"{milliseconds(microseconds)} on {_steps_with(view, idle)} of {view.step_times.number} steps"


def _steps_with(view: DeviceView, idle: Iterable[Idle]) -> int:
    return len(steps_with([step.start for step in view.steps], ((one.start, one.end) for one in idle)))
