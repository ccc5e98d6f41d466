"""Seconds of a step by phase: what runs inside another phase counts for the inner one alone. Knows no torch."""

from __future__ import annotations

import time
from collections.abc import Callable

from perfaudit.runs import PHASE_WORDS

PHASES = tuple(PHASE_WORDS)
_NUMBER = {name: number for number, name in enumerate(PHASES)}
_OTHER, _FORWARD, _OPTIMIZER = _NUMBER["other"], _NUMBER["forward"], _NUMBER["optimizer"]


class Spans:
    """Adds up time by phase. `begin` and `end` nest; between them it is the phase of what `ground` says, "other" at first.

    Time that turns out to be the forward pass only when the backward pass begins (a loss of functions, a model without
    modules) is held back as `_pending`, and given to one or the other. `_held` is of this what gradients were set to zero behind.
    """

    __slots__ = ("_clock", "_ground", "_held", "_mark", "_pending", "_seconds", "_stack")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = [0.0] * len(PHASES)
        self._stack: list[int] = []
        self._ground = _OTHER
        self._pending = self._held = 0.0
        self._mark = clock()

    def begin(self, name: str) -> None:
        """A phase begins, inside another one or by itself."""
        self.charge()
        self._stack.append(_NUMBER[name])

    def end(self) -> None:
        """The innermost phase ends."""
        self.charge()
        if self._stack:
            self._stack.pop()

    @property
    def is_inside(self) -> bool:
        """Whether a phase has begun and not ended."""
        return bool(self._stack)

    def expect_backward(self) -> None:
        """A model has been called for training: until `settle`, what is no phase is its loss, hence the forward pass."""
        self.charge()
        self._give_pending(_OTHER)
        self._ground = _FORWARD

    def hold_back(self, is_between: bool = False) -> None:
        """A batch is there, or gradients are set to zero: whether a forward pass begins now is not known yet.

        is_between: nor is known whether one has just ended, as gradients may be set to zero before it and behind it.
        """
        self.charge()
        if is_between:
            self._held += self._pending
            self._pending = 0.0
        else:
            self._give_pending(_OTHER)

    def doubt(self) -> None:
        """A number was read: what follows a model's call is its loss only if the backward pass is next, and not another call.

        A policy is called for an action, which is read and taken; a loss is read for its logging.
        """
        self.charge()
        if self._ground == _FORWARD and not self._stack:
            self._ground = _OTHER

    def leave_out(self) -> None:
        """What has passed since the last of these calls is no part of the step: it was ours."""
        self._mark = self._clock()

    def settle(self, is_backward: bool, is_older: bool = False) -> None:
        """The backward pass begins, so that what was held back was the forward pass; or no forward pass is under way.

        is_older: the loss is older than the last time that gradients were set to zero.
        """
        self.charge()
        if is_backward and is_older:
            self._seconds[_FORWARD] += self._held
            self._held = 0.0
        self._give_pending(_FORWARD if is_backward else _OTHER)
        self._ground = _OTHER

    def take(self) -> list[float]:
        """Seconds by phase since the last call, in the order of PHASES."""
        self.charge()
        self._give_pending(_OTHER)
        taken, self._seconds = self._seconds, [0.0] * len(PHASES)
        return taken

    def charge(self) -> None:
        """Give the time since the last call to the phase that is under way."""
        now = self._clock()
        is_closure = self._stack == [_OPTIMIZER]  # of which the loss is no part of the update
        if self._ground == _FORWARD and (is_closure or not self._stack):
            self._seconds[_FORWARD] += now - self._mark
        elif self._stack:
            self._seconds[self._stack[-1]] += now - self._mark
        else:
            self._pending += now - self._mark
        self._mark = now

    def _give_pending(self, phase: int) -> None:
        self._seconds[phase] += self._pending
        self._seconds[_OTHER] += self._held
        self._pending = self._held = 0.0
