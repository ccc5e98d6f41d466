"""Code is compiled anew on usual steps, or a compiled model has graph breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.intervals import Intervals, clip, difference, intersection, total, union, without_short_holes
from perfaudit.trace.words import a_step, percent, times_a_step

RULES = ("PA909", "PA908")
_COMPILE = re.compile(
    r"entire_frame_compile|compile_inner|backend_compile|: compile_fx\b|compile_fx_inner|create_aot_dispatcher_function|"
    r"convert_frame_assert|\(dynamo_timed\)"
)
_REGION = re.compile(r"Torch-Compiled Region|CompiledFxGraph\b|^## Call CompiledFxGraph")
_FRAME = re.compile(r"Torch-Compiled Region: (\d+)/")
MANY_FRAMES = 3  # in a model; one break makes two of one function
_RESUME = re.compile(r"torch_dynamo_resume_in_")


def look(view: DeviceView) -> Iterator[Seen]:
    idle = union((one.start, one.end) for one in view.idle if one.cause in ("launch", "other"))
    compiling = _spans(view, _COMPILE)
    lost = total(intersection(idle, union((begin, end) for begin, end, _ in compiling)))
    if lost:
        usual = len(view.whole.steps) > 1
        yield Seen(
            "PA909" if usual else "PA908",
            f"code is compiled {'on usual steps, not only on the first' if usual else 'inside the trace'}: the device is idle "
            f"meanwhile for {percent(view, lost)} of the time ({a_step(view, lost)})",
            lost,
            tuple(Instant(begin, thread) for begin, _, thread in compiling[:200]),
            None if usual else 0.0,
        )
        return
    regions = _spans(view, _REGION)
    has_breaks = bool(_spans(view, _RESUME))
    if not view.steps or not (has_breaks or _frames(view) >= MANY_FRAMES):
        return
    between = intersection(idle, _between(regions, [(step.start, step.end) for step in view.steps]))
    lost = total(between)
    often = times_a_step(view, len(regions), len(regions) / view.step_times.number)
    what = "has graph breaks" if has_breaks else "has graph breaks, or parts that are compiled one by one"
    yield Seen(
        "PA909",
        f"the compiled model {what}: compiled regions are called {often}, and between them the device is idle "
        f"for {percent(view, lost)} of the time ({a_step(view, lost)})",
        lost,
        tuple(Instant(begin, thread) for begin, _, thread in regions[:200]),
    )


def _frames(view: DeviceView) -> int:
    """How many functions were compiled: `Torch-Compiled Region: 3/1` is the second compilation of the fourth.

    Forward and backward of one function, and parts of one kind that are compiled once, count once.
    """
    return len({found[1] for name in view.recording.names if (found := _FRAME.match(name))})


def _spans(view: DeviceView, pattern: re.Pattern[str]) -> list[tuple[float, float, int]]:
    """Start, end and thread of what a host thread does under such a name, the order of time."""
    names = [bool(pattern.search(name)) for name in view.recording.names]
    if not any(names):
        return []
    found = [
        (spans.start[row], spans.end[row], spans.thread[row])
        for spans in (view.recording.operators, view.recording.annotations, view.recording.frames)
        for row in range(len(spans))
        if names[spans.name[row]] and view.host_start <= spans.start[row] < view.host_end
    ]
    return sorted(found)


def _between(regions: list[tuple[float, float, int]], steps: list[tuple[float, float]]) -> Intervals:
    """The holes between the first and the last region of each step."""
    inside = union((begin, end) for begin, end, _ in regions)
    found: Intervals = []
    for start, end in steps:
        mine = clip(inside, start, end)
        found += difference(without_short_holes(mine, end - start), mine)
    return found
