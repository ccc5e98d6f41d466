"""The steps that a profiler has marked in a trace."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from perfaudit.trace.recording import Recording

IS_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)").match
_MARGIN = 0.1  # of the part kept of a large file: what the last steps have launched may run behind their end


@dataclass(frozen=True, slots=True)
class Step:
    """A step on the host: microseconds since the recording's base, and the number that the profiler gave it."""

    start: float
    end: float
    number: int


def steps_of(recording: Recording) -> list[Step]:
    """The steps in the order of their times; [] where none is marked. Of a part, those that lie wholly in it."""
    spans = recording.annotations
    found: dict[int, Step] = {}
    for row in range(len(spans)):
        if mark := IS_STEP(recording.names[spans.name[row]]):
            step = Step(spans.start[row], spans.end[row], int(mark[1]))
            earlier = found.get(step.number)
            if earlier is None or step.end - step.start > earlier.end - earlier.start:
                found[step.number] = step  # a thread of the optimizer may repeat the mark inside
    steps = sorted(found.values(), key=lambda step: step.start)
    if recording.only is not None:
        first, last = recording.only
        whole = [step for step in steps if step.start >= first and step.end <= last]
        steps = whole or [Step(max(step.start, first), min(step.end, last), step.number) for step in steps]
    return steps


def are_consecutive(steps: Sequence[Step]) -> bool:
    """Whether no step is missing between the first and the last."""
    return all(later.number == earlier.number + 1 for earlier, later in itertools.pairwise(steps))


def chosen_part(marks: Sequence[tuple[float, float]], first: float, last: float, share: float) -> tuple[float, float]:
    """The part of a file, from its middle, that holds about `share` of its events: whole steps where they are marked."""
    steps = sorted(set(marks))
    wanted = int(share * len(steps) * (1 - _MARGIN))
    if steps and wanted:
        begin = (len(steps) - wanted) // 2
        chosen = steps[begin : begin + wanted]
        return chosen[0][0], chosen[-1][1] + _MARGIN * (chosen[-1][1] - chosen[0][0])
    if steps:
        first, last = steps[len(steps) // 2]
        share = min(1.0, share * len(steps))
    middle, half = (first + last) / 2, share * (last - first) / 2
    return middle - half, middle + half
