"""The beginning of a trace that is not like the rest: memory is taken, code is loaded or compiled, or a loader starts."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left

from perfaudit.trace import runtime_names
from perfaudit.trace.host_threads import data_waits, main_thread
from perfaudit.trace.intervals import Total
from perfaudit.trace.recording import Recording
from perfaudit.trace.steps import Step

# Microseconds; a call of the runtime that takes longer on an idle device loads code or creates something.
LONG_CALL = 5000.0
LONGER = 1.3  # times the median of the other steps
MOST = 0.5  # of the steps; if more are long, the others are the odd ones
LOADING = 0.5  # of what the first step takes longer that is waiting for its batch, and UNLIKE of that in any other step
UNLIKE = 0.1
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
    while number < len(steps) * MOST and lengths[number] > LONGER * usual and set_up.is_in(steps[number]):
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
        launches = [runtime_names.call_of(name) == "launch" for name in names]
        self._times = sorted(
            [calls.start[row] for row in range(len(calls)) if takes[calls.name[row]]]
            + [
                spans.start[row]
                for spans in (recording.operators, recording.annotations)
                for row in range(len(spans))
                if compiles[spans.name[row]]
            ]
        )
        self._launches = sorted(
            (calls.start[row], calls.end[row]) for row in range(len(calls)) if launches[calls.name[row]]
        )
        main = main_thread(recording)
        self.data_waits = Total([] if main is None else data_waits(recording, frozenset({main})))

    def is_in(self, step: Step) -> bool:
        """Whether memory is taken or code loaded or compiled in a step.

        A first launch that takes long loads the code of its kernel. A full queue makes launches wait too, but not the first one
        of a step.
        """
        at = bisect_left(self._times, step.start)
        if at < len(self._times) and self._times[at] < step.end:
            return True
        first = bisect_left(self._launches, (step.start, 0.0))
        if first == len(self._launches):
            return False
        start, end = self._launches[first]
        return start < step.end and end - start > LONG_CALL


def set_up_of(recording: Recording) -> SetUp:
    """The set-up calls of a recording, sorted once."""
    if recording.set_up is None:
        recording.set_up = SetUp(recording)
    assert isinstance(recording.set_up, SetUp)
    return recording.set_up
