"""Which functions of a script's own files some steps call: a finding in another one slows none of these. Child only.

The interpreter tells each call, which slows a step that calls many functions. So these steps come after those that are timed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from types import CodeType, FrameType
from typing import Any

LONGEST = 2.0  # seconds that one step may take, or there are no such steps
SECONDS = 1.0  # of steps, after which there are enough: some things are done in each tenth step
MOST = 20  # steps
GRACE = 5.0  # seconds that all of them may take, and after which the script is ended without knowing: it may have no more steps


class CalledFunctions:
    """What is called from `begin` to `end`, in one thread."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        self.is_known = False  # whether `end` was reached

    def begin(self) -> bool:
        """Listen from now on. False where the script listens itself, as its own profiler does."""
        if sys.getprofile() is not None:
            return False
        self._add_callers()
        sys.setprofile(self._hear)
        return True

    def end(self) -> None:
        """Listen no more."""
        self.is_known = sys.getprofile() == self._hear  # else the script has listened itself in between
        if self.is_known:
            sys.setprofile(None)
        self._add_callers()

    def _hear(self, frame: FrameType, event: str, _: Any) -> None:  # Any: of what depends on the event
        if event == "call":
            self._codes.add(frame.f_code)

    def _add_callers(self) -> None:
        """Those that are running: they were called before."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            self._codes.add(frame.f_code)
            frame = frame.f_back

    def names(self, files: Collection[str]) -> dict[str, list[tuple[int, str]]]:
        """First lines and names of the functions that were called, by file; every one of the files is there."""
        found: dict[str, list[tuple[int, str]]] = {file: [] for file in files}
        for code in self._codes:
            file = os.path.abspath(code.co_filename)  # noqa: PTH100
            if file in found:
                found[file].append((code.co_firstlineno, code.co_name))
        return {file: sorted(set(some)) for file, some in found.items()}
