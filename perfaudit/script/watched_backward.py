"""Functions that take the place of `backward` and of `torch.autograd.grad`. Child only; knows no torch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

from perfaudit.script.counts import Counts
from perfaudit.script.noted_events import (
    BACKWARD,
    BACKWARD_IN_UPDATE,
    CALLED,
    END,
    GRADIENTS,
    GRADIENTS_IN_UPDATE,
    MOST_NOTED,
    NO_GRADIENTS,
)
from perfaudit.script.notes import Notes
from perfaudit.script.replaced_functions import Function
from perfaudit.script.step_samples import StepSamples

_thread_now = threading.get_ident


class WatchedBackward:
    """Makes these functions. end_step: called after each backward pass; whether it was a step, as where there is no optimizer."""

    def __init__(self, notes: Notes, counts: Counts, samples: StepSamples, end_step: Callable[[], bool]) -> None:
        self._notes, self._counts, self._samples, self._end_step = notes, counts, samples, end_step

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
            self._samples.begin_backward()
            # Straight behind a model's call it is known where the loss was computed, see `Spans`: asking takes some time.
            is_known = events[-3:-2] == [CALLED] and events[-1] != NO_GRADIENTS
            loss = math.inf if is_known or not args else _node(args[0])
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


def _node(roots: Any) -> float:
    """The number of the node that a backward pass begins with; infinity where torch does not tell."""
    try:
        begin = roots.grad_fn
    except AttributeError:  # several of them
        begin = getattr(next(iter(roots or ()), None), "grad_fn", None)
    ask = getattr(begin, "_sequence_nr", None)
    return math.inf if ask is None else ask()
