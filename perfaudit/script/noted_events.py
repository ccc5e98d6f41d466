"""What is noted while a script trains, and the records of its updates that are made of it. Knows no torch.

Noting is what a step of the script pays for, so it is a single call: three values at the end of a list. The records are made
when they are told, a few times a second, in one go.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from perfaudit.script.spans import PHASES, Spans

Json = dict[str, Any]  # Any: nested JSON
MOST_NOTED = 3 * 20_000  # values, three of an event, before they are added up, whether anybody asks or not
# Calls of models before a backward pass that share a batch; more are the signs of a text, or actions of an episode.
MOST_CALLS = 4
# Rows of calls, parted by numbers that were read, of all of which a loss is made: a rollout, of which each action has samples.
ROLLOUT = 3
NO_GRADIENTS = -1  # behind a call

# Kinds of events, with what stands behind their time. Below `_KINDS` a phase begins, of that number; FORWARD has a model's class.
_KINDS = len(PHASES)
(
    END,  # the innermost phase ends
    CALLED,  # so does a model's call: samples of its input, 0 where they are not asked for, or NO_GRADIENTS
    STRETCH_ENDS,  # a number was read: nodes of graphs so far
    ZEROED,  # gradients were set to zero: the same
    WANTED,  # a batch is waited for
    BATCH,  # it is there: its samples
    EPOCH,  # a loader is begun: nothing
    BACKWARD,  # a backward pass begins: the node of its loss
    BACKWARD_IN_UPDATE,  # as does one in the closure of an update
    GRADIENTS,  # so does a call of `torch.autograd.grad`, which adds nothing to the gradients of parameters
    GRADIENTS_IN_UPDATE,
    UPDATE,  # an update begins that is in no other one: until when we have taken time for that, which is no part of a step
    UPDATED,  # the update of an optimizer has ended: its number, and what else its record has
    COUNTED,  # so has one since whose predecessor no phase was timed
    TOLD,  # whoever is told of the update has been
    OURS,  # something of ours has ended: when it began
    ACTED,  # the same, and it has shown that the next loss is made of the calls behind the last number that was read before one
    UNCLEAR_CALLS,  # the same, and it has not shown of which calls the next loss is made
) = range(_KINDS, _KINDS + 18)
FORWARD, OPTIMIZER = PHASES.index("forward"), PHASES.index("optimizer")


class UpdateRecords:
    """Makes records of events, each of an update with what happened since the one before.

    Of a record, `seconds` is all that time, `phases` are seconds in the order of PHASES. What stands in `samples` are those of
    batches, or of models' inputs where there are no batches. Where phases were not timed, `phases` is [], and there are no
    batches, samples and backward passes. `same_inputs` is there where models were called with what they had been called with
    before the last update. called: classes of models that were called.
    """

    def __init__(self, now: float) -> None:
        self._spans = Spans(now)
        self._records: list[Json] = []
        self.called: set[type] = set()
        self._noted = self._watched = 0  # events, and updates that are watched in full, behind the first one
        self._is_first = True  # until an update has ended
        self._forget(now)

    def _forget(self, now: float) -> None:
        self._batches = self._samples = self._epochs = self._without_gradients = self._backwards = 0
        self._backwards_in_update = 0  # of a closure
        self._gradients = 0  # of the backward passes, those of `torch.autograd.grad`
        self._zeroed = 0  # backward passes behind which gradients were set to zero, before the update
        self._inputs = 0  # samples of models' inputs
        self._are_inputs_clear = True
        # Calls of models since the last backward pass, and the samples of the first of them.
        self._calls = self._first_inputs = 0
        # The same since the last number that was read before one of these calls.
        self._calls_behind = self._first_inputs_behind = 0
        self._is_read = False
        self._rows = 0  # of these calls, parted by numbers that were read
        self._began = now

    def take(self) -> list[Json]:
        """The records since the last call."""
        records, self._records = self._records, []
        return records

    def add(self, events: Sequence[Any]) -> None:
        """Add events up. events: kind, time and value of the first, then of the next one, and so on; in order."""
        spans, values = self._spans, iter(events)
        self._noted += len(events) // 3
        for kind, now, value in zip(values, values, values, strict=True):
            spans.now = now
            if kind == STRETCH_ENDS:
                spans.end_stretch(value)
                self._is_read = True
            elif kind == ZEROED:
                spans.end_stretch(value)
                self._zeroed = self._backwards - self._gradients
            elif kind < _KINDS:
                spans.begin(PHASES[kind])
                if value is not None:
                    self.called.add(value)
            elif kind == END:
                spans.end()
            elif kind == CALLED:
                self._end_call(value)
            elif kind == WANTED:
                spans.settle(is_backward=False)
                spans.begin("data_wait")
            elif kind == BATCH:
                spans.end()
                spans.hold_back()
                self._batches += 1
                self._samples += value
            elif kind in (BACKWARD, BACKWARD_IN_UPDATE):
                self._backwards_in_update += kind == BACKWARD_IN_UPDATE
                self._begin_backward(value, is_in_update=kind == BACKWARD_IN_UPDATE)
            elif kind in (GRADIENTS, GRADIENTS_IN_UPDATE):
                self._gradients += 1
                self._begin_backward(value, is_in_update=kind == GRADIENTS_IN_UPDATE)
            elif kind == UPDATE:
                spans.settle(is_backward=False)
                spans.begin("optimizer")
                if value is not None:
                    self._leave_out(now, value)
            elif kind == UPDATED:
                if self._is_first:  # a rollout or an evaluation ahead of it may have noted a thousand times as much
                    self._noted, self._is_first = operator.length_hint(values) // 3, False
                else:
                    self._watched += 1
                self._end_update(now, spans.take(), *value)
            elif kind == COUNTED:
                self._noted -= 2  # with that behind it
                spans.take()
                self._end_update(now, [], *value)
            elif kind == TOLD:  # what that took is nobody's
                spans.take()
                self._began = now
            elif kind == EPOCH:
                self._epochs += 1
            elif kind == OURS:
                self._leave_out(value, now)
            elif kind == ACTED:
                self._leave_out(value, now)
                self._calls, self._first_inputs, self._rows = self._calls_behind, self._first_inputs_behind, 1
            elif kind == UNCLEAR_CALLS:
                self._leave_out(value, now)
                self._are_inputs_clear = False

    def _end_call(self, samples: int) -> None:
        has_gradients = samples != NO_GRADIENTS
        self._spans.end(is_loss_next=has_gradients)
        if not has_gradients:
            self._without_gradients += 1
            return
        self._calls += 1
        if self._calls == 1:
            self._first_inputs = samples
        self._calls_behind = 1 if self._is_read else self._calls_behind + 1
        self._rows += self._is_read or not self._rows
        if self._calls_behind == 1:
            self._first_inputs_behind = samples
        self._is_read = False

    def _begin_backward(self, loss: float, is_in_update: bool) -> None:
        is_again = is_in_update and self._backwards > 0  # a closure computes the loss of the same samples again
        self._backwards += 1
        self._inputs += 0 if is_again else self._first_inputs
        self._are_inputs_clear &= 0 < self._calls <= MOST_CALLS and self._rows < ROLLOUT
        self._rows = 0
        self._calls = self._first_inputs = self._calls_behind = self._first_inputs_behind = 0
        self._spans.settle(is_backward=True, loss=loss)
        self._spans.begin("backward")

    def _leave_out(self, began: float, ended: float) -> None:
        self._spans.now = began
        self._spans.charge()
        self._spans.now = ended
        self._spans.leave_out()
        self._began += ended - began

    @property
    def events_per_update(self) -> float:
        """Of those that are watched in full, without the first one."""
        return self._noted / self._watched if self._watched else 0.0

    def _end_update(self, now: float, phases: list[float], optimizer: int, values: Json) -> None:
        self._records.append(
            {
                "optimizer": optimizer,
                "seconds": now - self._began,
                "phases": phases,
                "batches": self._batches,
                "samples": self._samples or (self._inputs if self._are_inputs_clear else 0),
                "epochs": self._epochs,
                "without_gradients": self._without_gradients,
                "backwards": self._backwards,
                "backwards_in_update": self._backwards_in_update,
                "gradients": self._gradients,
                "zeroed": self._zeroed,
            }
            | values
        )
        self._forget(now)
