"""One step of a device as stretches, for a picture: what it does, and why it does nothing."""

from __future__ import annotations

import statistics
from itertools import groupby, pairwise

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.intervals import Intervals, clip, total
from perfaudit.trace.recording import MICROSECOND
from perfaudit.trace.steps import Step
from perfaudit.traces import Stretch

CELLS = 1500  # of a picture; each shows what takes most of its time


def timeline_of(view: DeviceView) -> tuple[list[Stretch], dict[str, float]]:
    """The step nearest to the median, or the whole window where no steps are marked; and seconds of each kind in it, exactly."""
    start, end = _drawn_part(view)
    if end <= start:
        return [], {}
    kinds = {kind: clip(intervals, start, end) for kind, intervals in _by_kind(view).items()}
    seconds = {kind: total(intervals) * MICROSECOND for kind, intervals in kinds.items() if intervals}
    return _stretches(_largest_of_cells(kinds, start, end), (end - start) * MICROSECOND / CELLS), seconds


def median_step(steps: list[Step]) -> Step:
    """The step whose length is nearest to the median."""
    usual = statistics.median(step.end - step.start for step in steps)
    return min(steps, key=lambda step: abs(step.end - step.start - usual))


def _drawn_part(view: DeviceView) -> tuple[float, float]:
    """From the end of the work of the step before to that of its own: the host may run ahead of the device by several steps."""
    if not view.steps:
        return view.start, view.end
    if len(view.steps) == 1:
        return view.start, view.end
    # When the step before the first one ended is not known, so that it is not drawn.
    parts = list(pairwise([*view.step_times.ends[:-1], view.end]))
    usual = statistics.median(end - start for start, end in parts)
    return min(parts, key=lambda part: abs(part[1] - part[0] - usual))


def _by_kind(view: DeviceView) -> dict[str, Intervals]:
    kinds = {
        "compute": view.compute,
        "communication_exposed": view.exposed_communication,
        "memory_exposed": view.exposed_memory,
    }
    for one in view.idle:
        kinds.setdefault(f"idle_{one.cause}", []).append((one.start, one.end))
    return {kind: sorted(intervals) for kind, intervals in kinds.items()}


def _largest_of_cells(kinds: dict[str, Intervals], start: float, end: float) -> list[str]:
    """The kind that takes most of each cell."""
    width = (end - start) / CELLS
    names = list(kinds)
    taken = [[0.0] * len(names) for _ in range(CELLS)]
    for column, name in enumerate(names):
        for begin, stop in kinds[name]:
            first, last = int((begin - start) / width), min(CELLS - 1, int((stop - start) / width))
            for cell in range(first, last + 1):
                left = start + cell * width
                taken[cell][column] += max(0.0, min(stop, left + width) - max(begin, left))
    return [names[max(range(len(names)), key=row.__getitem__)] if any(row) else "" for row in taken]


def _stretches(cells: list[str], width: float) -> list[Stretch]:
    found = []
    at = 0
    for kind, run in groupby(cells):
        length = len(list(run))
        if kind:
            found.append(Stretch(at * width, (at + length) * width, kind))
        at += length
    return found
