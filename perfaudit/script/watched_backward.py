"""Functions that take the place of `backward` and of `torch.autograd.grad`. Child only; knows no torch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

from perfaudit.script.counts import Counts
from perfaudit.script.noted_events import (
    ACTED,
    BACKWARD,
    BACKWARD_IN_UPDATE,
    CALLED,
    END,
    GRADIENTS,
    GRADIENTS_IN_UPDATE,
    MOST_NOTED,
    NO_GRADIENTS,
    OURS,
)
from perfaudit.script.notes import Notes
from perfaudit.script.replaced_functions import Function
from perfaudit.script.step_samples import StepSamples

_thread_now = threading.get_ident
LOOKS = 8  # at graphs, to see whether losses are made of calls before a number that was read; what all say holds
MOST_NODES = 1000  # of a graph that is looked at


class WatchedBackward:
    """Makes these functions. end_step: called after each backward pass; whether it was a step, as where there is no optimizer."""

    def __init__(self, notes: Notes, counts: Counts, samples: StepSamples, end_step: Callable[[], bool]) -> None:
        self._notes, self._counts, self._samples, self._end_step = notes, counts, samples, end_step
        self._looks = 0  # at losses that calls before a number that was read have no part in
        self._is_of_earlier_calls = False  # or may be: one of them was

    def watch(self, original: Function, accumulates: bool) -> Function:
        """accumulates: whether it adds to the gradients of parameters, which `torch.autograd.grad` does not."""
        notes, frames, counts = self._notes, self._notes.running.frames, self._counts
        events, note, clock = notes.events, notes.note, notes.clock
        outside, inside = (BACKWARD, BACKWARD_IN_UPDATE) if accumulates else (GRADIENTS, GRADIENTS_IN_UPDATE)

        def backward(*args: Any, **kwargs: Any) -> Any:
            is_here = _thread_now() == notes.here
            # A model may take gradients in its forward pass, too: those end no step.
            if not is_here and (counts.updates or not notes.here):
                return original(*args, **kwargs)
            if frames:
                notes.end_raised()
            counts.add_backward()
            # Straight behind a model's call it is known where the loss was computed, see `Spans`: asking takes some time.
            is_known = events[-3:-2] == [CALLED] and events[-1] != NO_GRADIENTS
            loss = math.inf if is_known or not args else _node(args[0])
            if self._samples.parted_at and args and not self._is_of_earlier_calls:
                self._look_at_graph(args[0])
            self._samples.begin_backward()
            note((inside if frames else outside, clock(), loss))
            if is_here:
                notes.depth += 1
                notes.here = 0  # what it calls, such as a model whose activations were not kept, counts for it
            else:
                note((END, clock(), None))
            try:
                result = original(*args, **kwargs)
            finally:
                if is_here:
                    note((END, clock(), None))
                    notes.here = notes.thread
                    notes.depth -= 1
            if not counts.updates:
                counts.on_sign()
            if not self._end_step() and len(events) > MOST_NOTED:
                notes.add_up()
            return result

        return backward

    def _look_at_graph(self, roots: Any) -> None:
        """See whether calls before the last number that was read have a part in a loss: those that chose an action have none."""
        began = self._notes.clock()
        if self._looks < LOOKS:
            self._looks += 1
            self._is_of_earlier_calls = reaches_before(roots, self._samples.parted_at)
        self._notes.note((OURS if self._is_of_earlier_calls else ACTED, self._notes.clock(), began))


def reaches_before(roots: Any, node: int) -> bool:
    """Whether the graph of a backward pass has nodes with a number below this, or may have: it is large, or does not tell."""
    begin: Any = getattr(roots, "grad_fn", None)
    waiting, seen = [begin], {begin}
    while waiting:
        each = waiting.pop()
        ask = getattr(each, "_sequence_nr", None)
        if ask is None or ask() < node or len(seen) > MOST_NODES:
            return True
        for following, _ in each.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def _node(roots: Any) -> float:
    """The number of the node that a backward pass begins with; infinity where torch does not tell."""
    try:
        begin = roots.grad_fn
    except AttributeError:  # several of them
        begin = getattr(next(iter(roots or ()), None), "grad_fn", None)
    ask = getattr(begin, "_sequence_nr", None)
    return math.inf if ask is None else ask()
