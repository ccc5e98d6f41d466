"""Seconds of a step by phase: what runs inside another phase counts for the inner one alone. Knows no torch."""

from __future__ import annotations

import math

from perfaudit.runs import PHASE_WORDS

PHASES = tuple(PHASE_WORDS)
_NUMBER = {name: number for number, name in enumerate(PHASES)}
_OTHER, _FORWARD, _OPTIMIZER = _NUMBER["other"], _NUMBER["forward"], _NUMBER["optimizer"]
_IN_CLOSURE = [_OPTIMIZER, _OTHER]  # phases under way in a closure that an optimizer calls

MOST_STRETCHES = 8  # that are held back; a loss is computed in one of the last


class Spans:
    """Adds up time by phase. `begin` and `end` nest; between them it is the phase of what `ground` says, "other" at first.

    now: when it is that what is called next happens, in seconds. Whoever calls sets it.

    Time that turns out to be the forward pass only when the backward pass begins (a loss of functions, a model without
    modules) is held back in stretches, which end where gradients are set to zero or a number is read. Of these, the one in which
    the loss was computed is the forward pass: `node` is how many nodes graphs had then, and the loss is one of them.
    """

    __slots__ = ("_ground", "_loss_depth", "_mark", "_pending", "_seconds", "_stack", "_stretches", "now")

    def __init__(self, now: float = 0.0) -> None:
        self.now = self._mark = now
        self._seconds = [0.0] * len(PHASES)
        self._stack: list[int] = []
        self._ground = _OTHER
        self._loss_depth = 0  # phases under way where the ground became the forward pass
        self._pending = 0.0
        self._stretches: list[tuple[int, float]] = []  # the node behind each, and its seconds

    def begin(self, name: str) -> None:
        """A phase begins, inside another one or by itself."""
        self.charge()
        self._stack.append(_NUMBER[name])

    def end(self, is_loss_next: bool = False) -> None:
        """The innermost phase ends.

        is_loss_next: it was a model's call for training. Until `settle`, what is no phase is its loss, hence the forward pass.
        """
        self.charge()
        if self._stack:
            self._stack.pop()
        if is_loss_next:
            self._give_pending(_OTHER)
            self._ground, self._loss_depth = _FORWARD, len(self._stack)

    def hold_back(self) -> None:
        """A batch is there: whether a forward pass begins now is not known yet."""
        self.charge()
        self._give_pending(_OTHER)

    def end_stretch(self, node: int) -> None:
        """Gradients were set to zero, or a number was read: a forward pass has just ended, or begins now, or neither.

        What follows a model's call is its loss no more, unless the loss is still to come: a policy is called for an action, which
        is read and taken; a loss is read for its logging.
        """
        self.charge()
        if self._stack:
            return
        self._ground = _OTHER
        if self._stretches and self._stretches[-1][0] == node:
            self._pending += self._stretches.pop()[1]  # no graph has grown
        self._stretches.append((node, self._pending))
        self._pending = 0.0
        if len(self._stretches) > MOST_STRETCHES:
            self._seconds[_OTHER] += self._stretches.pop(0)[1]

    def leave_out(self) -> None:
        """What has passed since the last of these calls is no part of the step: it was ours."""
        self._mark = self.now

    def settle(self, is_backward: bool, loss: float = math.inf) -> None:
        """The backward pass begins, so that what was held back was the forward pass; or no forward pass is under way.

        loss: its node, infinity where that is not known.
        """
        self.charge()
        before = -1
        for node, seconds in self._stretches:
            is_forward = is_backward and before <= loss < node
            self._seconds[_FORWARD if is_forward else _OTHER] += seconds
            before = node
        self._stretches.clear()
        self._give_pending(_FORWARD if is_backward and loss >= before else _OTHER)
        self._ground = _OTHER

    def take(self) -> list[float]:
        """Seconds by phase since the last call, in the order of PHASES."""
        self.charge()
        self._give_pending(_OTHER)
        taken, self._seconds = self._seconds, [0.0] * len(PHASES)
        return taken

    def charge(self) -> None:
        """Give the time since the last call to the phase that is under way."""
        spent, stack = self.now - self._mark, self._stack
        self._mark = self.now
        # Of a closure that an optimizer calls, the loss is the forward pass, and what it does besides is "other"; gradients that
        # are zeroed before the backward pass are no part of the loss.
        if self._ground == _FORWARD and len(stack) == self._loss_depth and (not stack or stack == _IN_CLOSURE):
            self._seconds[_FORWARD] += spent
        elif stack:
            self._seconds[stack[-1]] += spent
        else:
            self._pending += spent

    def _give_pending(self, phase: int) -> None:
        self._seconds[phase] += self._pending
        self._pending = 0.0
        if self._stretches:
            self._seconds[_OTHER] += sum(seconds for _, seconds in self._stretches)
            self._stretches.clear()
