"""The steps that a profiler has marked in a trace."""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfaudit.trace.recording import Recording

IS_STEP = re.compile(r"ProfilerStep\s*#\s*(\d{1,12})(?!\d)").match
HOLE = 0.5  # of a usual step, between two steps, from which on something is missing there
_MARGIN = 0.1  # of the part kept of a large file: what the last steps have launched may run behind their end


@dataclass(frozen=True, slots=True)
class Step:
    """A step on the host: microseconds since the recording's base, and the number that the profiler gave it."""

    start: float
    end: float
    number: int


def steps_of(recording: Recording, window: tuple[int, int] | None = None) -> list[Step]:
    """The steps in the order of their times, of a window of numbers; [] where none is marked.

    Where steps are missing in between, the longest row of steps without a hole: what the device did in a hole is not known.
    """
    steps = [step for step in marked_steps(recording) if window is None or window[0] <= step.number <= window[1]]
    whole = _without_holes(steps)
    if len(whole) < len(steps):
        recording.notes.add("missing-steps")
    return whole


def marked_steps(recording: Recording) -> list[Step]:
    """All steps that are marked, in the order of their times. Of a part, those that lie wholly in it."""
    spans = recording.annotations
    numbers = {index: int(mark[1]) for index, name in enumerate(recording.names) if (mark := IS_STEP(name))}
    rows = _of_one_process(recording, [row for row in range(len(spans)) if spans.name[row] in numbers])
    steps = _outermost(Step(spans.start[row], spans.end[row], numbers[spans.name[row]]) for row in rows)
    if recording.only is not None:
        first, last = recording.only
        steps = [step for step in steps if step.start >= first and step.end <= last]
    return steps


def _of_one_process(recording: Recording, rows: list[int]) -> list[int]:
    """Those of the process that marks most, of a file into which the traces of several were put: each marks the same steps."""
    processes = [recording.threads[recording.annotations.thread[row]][0] for row in rows]
    most, _ = next(iter(Counter(processes).most_common(1)), ("", 0))
    return [row for row, process in zip(rows, processes, strict=True) if process == most]


def _without_holes(steps: list[Step]) -> list[Step]:
    if len(steps) < 2:
        return steps
    usual = statistics.median(step.end - step.start for step in steps)
    rows = [[steps[0]]]
    for earlier, later in itertools.pairwise(steps):
        if later.start - earlier.end > HOLE * usual and later.number != earlier.number + 1:
            rows.append([])
        rows[-1].append(later)
    return max(rows, key=len)


def _outermost(marks: Iterable[Step]) -> list[Step]:
    """The marks in the order of time; of one number that lie inside each other the longest."""
    found: list[Step] = []
    for step in sorted(marks, key=lambda one: (one.start, -one.end)):
        inside = any(one.number == step.number and step.start < one.end for one in found[-1:])
        if not inside:  # a thread of the optimizer may repeat the mark
            found.append(step)
    return found


def are_consecutive(steps: Sequence[Step]) -> bool:
    """Whether no step is missing between the first and the last."""
    return all(later.number == earlier.number + 1 for earlier, later in itertools.pairwise(steps))


def are_repeated(steps: Sequence[Step]) -> bool:
    """Whether several steps have one number."""
    return len({step.number for step in steps}) < len(steps)


def chosen_part(
    marks: Iterable[Step], whole: tuple[float, float], share: float, window: tuple[int, int] | None = None
) -> tuple[float, float]:
    """The part of a file that holds about `share` of its events: whole steps where they are marked, from the middle.

    whole: from the first event of the file to the last. window: numbers of the first and the last step that were asked for; the
    part is taken of these alone, where some are marked.
    """
    steps = _outermost(marks)
    asked = [step for step in steps if window is None or window[0] <= step.number <= window[1]] or steps
    wanted = min(len(asked), int(share * len(steps) * (1 - _MARGIN)))
    if wanted:
        begin = (len(asked) - wanted) // 2
        chosen = asked[begin : begin + wanted]
        return chosen[0].start, chosen[-1].end + _MARGIN * (chosen[-1].end - chosen[0].start)
    first, last = whole
    if asked:
        first, last = asked[len(asked) // 2].start, asked[len(asked) // 2].end
        share = min(1.0, share * len(steps))
    middle, half = (first + last) / 2, share * (last - first) / 2
    return middle - half, middle + half
