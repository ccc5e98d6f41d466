"""One step of a device as stretches, for a picture: what it does, and why it does nothing."""

from __future__ import annotations

import statistics

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.intervals import Intervals, clipped, without_short_holes
from perfaudit.trace.recording import MICROSECOND
from perfaudit.trace.steps import Step
from perfaudit.traces import Stretch

FINEST = 1 / 1500  # of the step; shorter stretches cannot be seen in a picture and are joined with their neighbours
MOST = 1500  # stretches of one picture


def timeline_of(view: DeviceView) -> list[Stretch]:
    """The step nearest to the median, or the whole window where no steps are marked."""
    start, end = _chosen(view)
    length = end - start
    if length <= 0:
        return []
    found: list[Stretch] = []
    for kind, intervals in (
        ("compute", view.compute),
        ("communication_exposed", view.exposed_communication),
        ("memory_exposed", view.exposed_memory),
    ):
        found += _stretches(kind, clipped(intervals, start, end), start, length)
    causes: dict[str, Intervals] = {}
    for one in view.idle:
        if one.end > start and one.start < end:
            causes.setdefault(one.cause, []).append((max(one.start, start), min(one.end, end)))
    for cause, intervals in causes.items():
        found += _stretches(f"idle_{cause}", sorted(intervals), start, length)
    found.sort(key=lambda one: one.start - one.end)
    return sorted(found[:MOST], key=lambda one: one.start)


def median_step(steps: list[Step]) -> Step:
    """The step whose length is nearest to the median."""
    usual = statistics.median(step.end - step.start for step in steps)
    return min(steps, key=lambda step: abs(step.end - step.start - usual))


def _chosen(view: DeviceView) -> tuple[float, float]:
    """From the first piece of work that the step launched to the first of the next one."""
    if not view.steps:
        return view.start, view.end
    step = median_step(view.steps)
    later = [one.start for one in view.steps if one.start > step.start]
    return step.start, later[0] if later else max(step.end, view.end)


def _stretches(kind: str, intervals: Intervals, start: float, length: float) -> list[Stretch]:
    joined = without_short_holes(intervals, FINEST * length) if kind == "compute" else intervals
    return [
        Stretch((begin - start) * MICROSECOND, (end - start) * MICROSECOND, kind)
        for begin, end in joined
        if end - begin >= FINEST * length
    ]
