"""The calls of `step` that are under way, one inside the other. One that raises calls no hook, and is found by its frame."""

from __future__ import annotations

import sys
from types import FrameType

from perfaudit.target.provenance import OURS


class RunningUpdates:
    """Calls of `Optimizer.step` that have begun and not ended; true while there is one."""

    def __init__(self) -> None:
        self._frames: list[FrameType] = []

    def __bool__(self) -> bool:
        return bool(self._frames)

    def begin(self) -> None:
        """The call in which this hook runs has begun."""
        self._frames.append(_calling_frame())

    def end(self) -> int:
        """The call in which this hook runs ends; how many end with it, as those within it that raised do."""
        calling, number = _calling_frame(), len(self._frames)
        while self._frames and self._frames.pop() is not calling:
            pass
        return number - len(self._frames)

    def drop_raised(self) -> int:
        """Forget calls that have raised, and whoever called them went on; how many there were."""
        number = len(self._frames)
        while self._frames and not _is_running(self._frames[-1]):
            self._frames.pop()
        return number - len(self._frames)


def _calling_frame() -> FrameType:
    """The innermost frame that is not ours: that of the call in which a hook of ours runs."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    return frame


def _is_running(frame: FrameType) -> bool:
    at: FrameType | None = sys._getframe(1)
    while at is not None and at is not frame:
        at = at.f_back
    return at is not None
