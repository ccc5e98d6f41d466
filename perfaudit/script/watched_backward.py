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
    UNCLEAR_CALLS,
)
from perfaudit.script.notes import Notes
from perfaudit.script.replaced_functions import Function
from perfaudit.script.step_samples import StepSamples

_thread_now = threading.get_ident
LOOKS = 8  # at graphs, to see whether losses are made of calls before a number that was read; what all say holds
MOST_NODES = 10_000  # of a graph that is looked at, as that of a model of 100 layers or more: some 10 ms for each look


class WatchedBackward:
    """Makes these functions. end_step: called after each backward pass; whether it was a step, as where there is no optimizer."""

    def __init__(self, notes: Notes, counts: Counts, samples: StepSamples, end_step: Callable[[], bool]) -> None:
        self._notes, self._counts, self._samples, self._end_step = notes, counts, samples, end_step
        self._looks = 0  # at losses that calls before a number that was read have no part in
        self._is_of_earlier_calls = False  # one of them was
        self._all_say: int | None = None  # the kind of event that all looks have led to

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
            if self._samples.parted_at and not self._is_of_earlier_calls:
                self._look_at_graph(args[0] if args else None)
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
        began, kind = self._notes.clock(), self._all_say
        if self._looks < LOOKS:
            self._looks += 1
            kind = {True: OURS, False: ACTED, None: UNCLEAR_CALLS}[reaches_before(roots, self._samples.parted_at)]
            self._is_of_earlier_calls = kind == OURS
            self._all_say = kind if self._all_say in (None, kind) else UNCLEAR_CALLS
        self._notes.note((kind, self._notes.clock(), began))


def reaches_before(roots: Any, node: int) -> bool | None:
    """Whether the graph of a backward pass has nodes with a number below this; None where it is too large, or does not tell."""
    each_root = roots if isinstance(roots, (list, tuple)) else [roots]
    if not all(hasattr(root, "grad_fn") for root in each_root):
        return None
    waiting: list[Any] = list(dict.fromkeys(root.grad_fn for root in each_root if root.grad_fn is not None))
    seen = set(waiting)
    while waiting:
        each = waiting.pop()
        ask = getattr(each, "_sequence_nr", None)
        if ask is None or len(seen) > MOST_NODES:
            return None
        if ask() < node:
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
