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
    modules) is held back as `_pending`, and given to one or the other.
    """

    __slots__ = ("_clock", "_ground", "_mark", "_pending", "_seconds", "_stack")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = [0.0] * len(PHASES)
        self._stack: list[int] = []
        self._ground = _OTHER
        self._pending = 0.0
        self._mark = clock()

    def begin(self, name: str) -> None:
        """A phase begins, inside another one or by itself."""
        self._charge()
        self._stack.append(_NUMBER[name])

    def end(self) -> None:
        """The innermost phase ends."""
        self._charge()
        if self._stack:
            self._stack.pop()

    @property
    def is_inside(self) -> bool:
        """Whether a phase has begun and not ended."""
        return bool(self._stack)

    def expect_backward(self) -> None:
        """A model has been called for training: until `settle`, what is no phase is its loss, hence the forward pass."""
        self._charge()
        self._give_pending(_OTHER)
        self._ground = _FORWARD

    def hold_back(self) -> None:
        """A batch is there, or gradients are set to zero: whether a forward pass begins now is not known yet."""
        self._charge()
        self._give_pending(_OTHER)

    def settle(self, is_backward: bool) -> None:
        """The backward pass begins, so that what was held back was the forward pass; or no forward pass is under way."""
        self._charge()
        self._give_pending(_FORWARD if is_backward else _OTHER)
        self._ground = _OTHER

    def take(self) -> list[float]:
        """Seconds by phase since the last call, in the order of PHASES."""
        self._charge()
        self._give_pending(_OTHER)
        taken, self._seconds = self._seconds, [0.0] * len(PHASES)
        return taken

    def _charge(self) -> None:
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
        self._pending = 0.0
