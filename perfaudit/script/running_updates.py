"""The calls of `step` that are under way, one inside the other. One that raises calls no hook, and is found by its frame."""

from __future__ import annotations

import sys
from types import FrameType


class RunningUpdates:
    """Calls of `Optimizer.step` that have begun and not ended.

    frames: that in which the hooks of each are called, the innermost last. Whoever begins one adds its frame.
    """

    def __init__(self) -> None:
        self.frames: list[FrameType] = []

    def end(self, frame: FrameType) -> int:
        """The call of this frame ends; how many end with it, as those within it that raised do."""
        number = len(self.frames)
        while self.frames and self.frames.pop() is not frame:
            pass
        return number - len(self.frames)

    def drop_raised(self) -> int:
        """Forget calls that have raised, and whoever called them went on; how many there were."""
        number = len(self.frames)
        while self.frames and not _is_running(self.frames[-1]):
            self.frames.pop()
        return number - len(self.frames)


def _is_running(frame: FrameType) -> bool:
    at: FrameType | None = sys._getframe(1)
    while at is not None and at is not frame:
        at = at.f_back
    return at is not None
