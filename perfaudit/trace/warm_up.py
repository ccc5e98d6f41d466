"""The beginning of a trace that is not like the rest: memory is taken, code is loaded or compiled, or a loader starts."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left

from perfaudit.trace import runtime_names
from perfaudit.trace.host_threads import data_waits, main_thread
from perfaudit.trace.intervals import Total, union
from perfaudit.trace.recording import Recording
from perfaudit.trace.steps import Step

# Microseconds; a call of the runtime that takes longer on an idle device loads code or creates something.
LONG_CALL = 5000.0
SLOW_CALL = 500.0  # microseconds; a usual launch on an idle device takes a hundredth of it
LONGER = 1.3  # times the median of the other steps
MOST = 0.5  # of the steps; if more are long, the others are the odd ones
LOADING = 0.5  # of what a step takes longer that loading code, or waiting for its batch, must explain
UNLIKE = 0.1  # of that wait in any other step
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
    set_up = set_up_of(recording)
    number = 0
    while (
        number < len(steps) * MOST
        and lengths[number] > LONGER * usual
        and set_up.is_in(steps[number], lengths[number] - usual)
    ):
        number += 1
    if number == 0 and lengths[0] > LONGER * usual and _starts_loader(set_up, steps, lengths[0] - usual):
        return 1
    return number


def _starts_loader(set_up: SetUp, steps: list[Step], longer: float) -> bool:
    """Whether the first step is longer because it waits for its batch, and no other step waits so: its loader starts there.

    Of two steps one waits by chance.
    """
    first, *others = (set_up.data_waits.between(step.start, step.end) for step in steps)
    return len(others) > 1 and first > LOADING * longer and max(others) < UNLIKE * first


class SetUp:
    """When a program sets something up, and when it launches, sorted, so that each step is looked at without looking at all."""

    def __init__(self, recording: Recording) -> None:
        calls, names = recording.calls, recording.names
        takes = [runtime_names.is_device_memory(name) or bool(_LOADING.search(name)) for name in names]
        compiles = [bool(_COMPILING.search(name)) for name in names]
        launches = [runtime_names.call_of(name) in ("launch", "other") for name in names]
        self._times = sorted(
            [calls.start[row] for row in range(len(calls)) if takes[calls.name[row]]]
            + [
                spans.start[row]
                for spans in (recording.operators, recording.annotations)
                for row in range(len(spans))
                if compiles[spans.name[row]]
            ]
        )
        slow = sorted(
            (calls.start[row], calls.end[row])
            for row in range(len(calls))
            if launches[calls.name[row]] and calls.end[row] - calls.start[row] > SLOW_CALL
        )
        work = recording.work
        busy = Total(union(zip(work.start, work.end, strict=True)) if slow else [])
        # A full queue makes launches wait too, but then the device works.
        self._loading = [pair for pair in slow if busy.between(*pair) < 0.5 * (pair[1] - pair[0])]
        main = main_thread(recording)
        self.data_waits = Total([] if main is None else data_waits(recording, frozenset({main})))

    def is_in(self, step: Step, longer: float = float("inf")) -> bool:
        """Whether memory is taken or code loaded or compiled in a step.

        A launch that takes long on an idle device loads the code of its kernel: one very long one, or several that explain half
        of what the step takes longer.
        """
        at = bisect_left(self._times, step.start)
        if at < len(self._times) and self._times[at] < step.end:
            return True
        inside = self._loading[
            bisect_left(self._loading, (step.start, 0.0)) : bisect_left(self._loading, (step.end, 0.0))
        ]
        took = [end - start for start, end in inside]
        return max(took, default=0.0) > LONG_CALL or sum(took) > LOADING * longer


def set_up_of(recording: Recording) -> SetUp:
    """The set-up calls of a recording, sorted once."""
    if recording.set_up is None:
        recording.set_up = SetUp(recording)
    assert isinstance(recording.set_up, SetUp)
    return recording.set_up
