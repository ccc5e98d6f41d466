"""Functions that take the place of the call of a model. Child only; knows no torch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from perfaudit.script.batch_axis import BatchAxes
from perfaudit.script.counts import Counts
from perfaudit.script.noted_events import CALLED, FORWARD, MOST_NOTED, NO_GRADIENTS
from perfaudit.script.notes import Notes
from perfaudit.script.replaced_functions import Function
from perfaudit.script.step_samples import StepSamples


class WatchedCalls:
    """Makes these functions. has_gradients: whether torch keeps what is computed for a backward pass."""

    def __init__(self, notes: Notes, counts: Counts, samples: StepSamples) -> None:
        self._notes, self._counts, self._samples = notes, counts, samples
        self._axes = BatchAxes()
        self.has_gradients: Callable[[], bool] = bool

    def watch(self, original: Function) -> Function:
        """A model is called."""
        notes, has_gradients, thread_now = self._notes, self.has_gradients, threading.get_ident
        events, note, clock = notes.events, notes.note, notes.clock
        step, axes = self._samples, self._axes

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            here = notes.here
            if not here or thread_now() != here:
                if here or not notes.only_counts or notes.depth or has_gradients():
                    return original(model, *args, **kwargs)
                return self._count_call(original, model, *args, **kwargs)
            notes.here = 0
            notes.depth += 1
            note((FORWARD, clock(), type(model)))
            try:
                if step.wants_inputs and axes.is_new(model) and has_gradients():
                    with axes.look_during(model, [*args, *kwargs.values()]):
                        return original(model, *args, **kwargs)
                return original(model, *args, **kwargs)
            finally:
                now = clock()
                notes.here = notes.thread
                notes.depth -= 1
                samples = 0 if has_gradients() else NO_GRADIENTS
                if step.wants_inputs and not samples:
                    samples = step.count_inputs([*args, *kwargs.values()], axes.of(model))
                note((CALLED, now, samples))
                if samples == NO_GRADIENTS:
                    self._counts.add_evaluated()
                if len(events) > MOST_NOTED:
                    notes.add_up()

        return call

    def _count_call(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        """Call a model without gradients where only that is told; models inside of it count for it."""
        notes = self._notes
        if notes.is_elsewhere():
            return original(*args, **kwargs)
        notes.depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            notes.depth -= 1
            notes.note((CALLED, notes.clock(), NO_GRADIENTS))
            self._counts.add_evaluated()
            notes.add_up_many()
