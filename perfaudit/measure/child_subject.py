"""A training that was built in a child, and the steps that are timed in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.ledger import Block
from perfaudit.measure.runner import TrialEnded, TrialFailed

HANGING = 3.0  # times what a block should take; beyond it, and beyond the timeout, it hangs


class TimedChild:
    """A training in a child, which stands still but for its blocks.

    timeout: seconds that a block may take, or HANGING times what its steps are known to take. device: its type. counts_tokens:
    blocks say how many tokens their batches hold, see `ledger.Block`. made: steps of its blocks. is_own_end: whether an error,
    with which a block of so many steps ends, is the training's own, and no fault of what is measured.
    """

    is_own_end: Callable[[str, int], bool] = staticmethod(lambda error, steps: False)

    def __init__(self, child: Child, timeout: float, device: str = "", counts_tokens: bool = False) -> None:
        self.child = child
        self.device = device
        self._counts_tokens = counts_tokens
        self.seconds_per_step = 0.0  # as it took when it was warmed up; 0.0 until then
        self.made = 0
        self._timeout = timeout
        self._begun: dict[str, Any] | None = None  # the command that the child was given, and has not answered

    def time_steps(self, steps: int, untimed: int) -> tuple[Block, dict[str, Any]]:
        """Run steps that are not timed and time so many, one by one; then stand still. Raises TrialFailed.

        Beside the block the seconds and samples of each step; with_restarts: what starting an epoch costs is in these.
        """
        command = self._command(steps, untimed)
        timeout = max(self._timeout, HANGING * (steps + untimed) * self.seconds_per_step)
        begun, self._begun = self._begun, None
        assert begun in (None, command)
        try:
            reply = self.child.ask(command, timeout) if begun is None else self.child.receive(timeout)
        except ChildFailed as failure:
            is_own = failure.kind == "step" and self.is_own_end(str(failure), steps + untimed)
            raise TrialEnded(str(failure)) if is_own else trial_failure(failure) from failure
        self.made += steps + untimed
        self.child.pause()
        each = reply.pop("each")
        return Block(**reply), each

    def begin(self, steps: int, untimed: int) -> None:
        """Have it begin what `time_steps` is asked for next, while others run: for first steps, whose time nobody wants."""
        self._begun = self._command(steps, untimed)
        with contextlib.suppress(ChildFailed):  # that it is gone is told when its reply is read
            self.child.send(self._begun)

    def _command(self, steps: int, untimed: int) -> dict[str, Any]:
        command = {"do": "block", "steps": steps, "untimed": untimed}
        return command | ({"counts_tokens": True} if self._counts_tokens else {})

    def room(self) -> dict[str, Any]:
        """What is free for other copies: see `memory.room`; {} where it does not answer."""
        try:
            reply = self.child.ask({"do": "room"}, self._timeout)
        except ChildFailed:
            return {}
        self.child.pause()
        return reply

    def close(self) -> None:
        """End the child."""
        self.child.close()


class ChildSubject(TimedChild):
    """One whose blocks a ledger keeps: see `runner.Opened`."""

    def block(self, steps: int, untimed: int = 1) -> Block:
        return self.time_steps(steps, untimed)[0]


def trial_failure(failure: ChildFailed) -> TrialFailed:
    """What a child's failure means to those who measure."""
    kind = TrialEnded if failure.kind == "ended" else TrialFailed
    return kind(str(failure))
