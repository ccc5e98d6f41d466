"""The beginning of a trace that is not like the rest: memory is taken, kernels are chosen, loaded or compiled."""

from __future__ import annotations

import re
import statistics

from perfaudit.trace import runtime_names
from perfaudit.trace.recording import Recording
from perfaudit.trace.steps import Step

LONG_CALL = (
    5000.0  # microseconds; a call of the runtime that takes longer on an idle device loads code or creates something
)
LONGER = 1.3  # times the median of the other steps
MOST = 0.5  # of the steps; if more are long, the others are the odd ones
_LOADING = re.compile(r"ModuleLoad|LibraryLoad|ModuleGetFunction|LazyLoad")
_COMPILING = re.compile(
    r"compile_inner|entire_frame_compile|backend_compile|compile_fx|CompiledFxGraph|triton.*compile", re.I
)


def warm_up_steps(recording: Recording, steps: list[Step]) -> int:
    """How many steps at the beginning are warm-up: longer than the others, with calls that set something up."""
    if len(steps) < 2:
        return 0
    lengths = [step.end - step.start for step in steps]
    usual = statistics.median(lengths[len(lengths) // 2 :])
    number = 0
    while number < len(steps) * MOST and lengths[number] > LONGER * usual and _sets_up(recording, steps[number]):
        number += 1
    return number


def _sets_up(recording: Recording, step: Step) -> bool:
    names = recording.names
    for spans, pattern in (
        (recording.calls, _LOADING),
        (recording.operators, _COMPILING),
        (recording.annotations, _COMPILING),
    ):
        known = [bool(pattern.search(name)) for name in names]
        if any(known[spans.name[row]] and step.start <= spans.start[row] < step.end for row in range(len(spans))):
            return True
    return allocations_in(recording, step) > 0 or _has_long_launch(recording, step)


def _has_long_launch(recording: Recording, step: Step) -> bool:
    """Whether a launch takes so long that it loads the code of its kernel; a full queue makes launches wait, but not on a device
    that has nothing to do, as here: the first launch of the step.
    """
    calls = recording.calls
    launches = [runtime_names.call_of(name) == "launch" for name in recording.names]
    rows = (row for row in range(len(calls)) if launches[calls.name[row]] and step.start <= calls.start[row] < step.end)
    first = min(rows, key=calls.start.__getitem__, default=None)
    return first is not None and calls.end[first] - calls.start[first] > LONG_CALL


def allocations_in(recording: Recording, step: Step) -> int:
    """Calls that take device memory from the driver, or give it back, in a step."""
    calls = recording.calls
    takes = [runtime_names.is_device_memory(name) for name in recording.names]
    return sum(takes[calls.name[row]] and step.start <= calls.start[row] < step.end for row in range(len(calls)))
