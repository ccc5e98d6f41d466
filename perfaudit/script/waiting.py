"""Who waits for whom while a script trains: the device for the host, or the training's thread for something else. Child only."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from perfaudit.target.accelerator import Accelerator, accelerator_of, device_in_use

FIRST = 3  # updates that are left out: of these the start of the script takes most
KEPT = 512  # updates of which it is kept how long the thread stood still
LONG = 3.0  # times the median: an update that took longer holds an evaluation, or the beginning of an epoch
_SCHEDULED = "/proc/thread-self/schedstat"  # nanoseconds on a core, and waiting for one, of who opens it; Linux


class Waiting:
    """What is counted at the end of each update, by the thread that trains."""

    def __init__(self) -> None:
        self._updates = 0
        self._accelerator: Accelerator | None = None
        self._mark: Any = None  # Any: an event of the device
        self._marks = self._behind = 0
        self._thread = 0
        self._clocks: int | None = None  # a file, of the thread that trains
        self._queued = 0.0  # seconds that its other threads had waited for a core, at the beginning
        self._last: tuple[float, float] | None = None
        self._spans: deque[tuple[float, float]] = deque(
            maxlen=KEPT
        )  # seconds between updates, and of them standing still

    def end_update(self, is_next: bool = True) -> None:
        """An update has been handed to the device, or is done where there is none.

        is_next: whether the one before it was told, too.
        """
        self._updates += 1
        if self._updates < FIRST:
            return
        if self._updates == FIRST:
            with contextlib.suppress(OSError):
                self._clocks = os.open(_SCHEDULED, os.O_RDONLY)
            self._thread = threading.get_native_id()
            self._queued = _queued_but(self._thread)
            if "torch" in sys.modules and (device := device_in_use()):
                self._accelerator = accelerator_of(sys.modules["torch"].device(device))
        now, before = self._read(), self._last if is_next else None
        if now is not None and before is not None:
            wall = now[0] - before[0]
            self._spans.append((wall, max(0.0, wall - (now[1] - before[1]))))
        self._last = now
        if self._accelerator is not None:
            if self._mark is not None and is_next:
                self._marks += 1
                self._behind += not self._accelerator.has_passed(self._mark)
            self._mark = self._accelerator.mark()

    def facts(self) -> dict[str, float]:
        """Shares: `behind` of updates at whose end the device had not come to the end of the one before, `blocked` of the time
        of usual updates in which the thread neither ran nor waited for a core. What is not known is left out.

        On a busy machine the thread stands still where it waits for threads of its own that wait for a core: that is left out.
        """
        found = {}
        if self._marks:
            found["behind"] = self._behind / self._marks
        longest = LONG * statistics.median([wall for wall, _ in self._spans] or [0.0])
        usual = [span for span in self._spans if span[0] <= longest]
        if whole := sum(wall for wall, _ in usual):
            still = sum(still for _, still in usual) - max(0.0, _queued_but(self._thread) - self._queued)
            found["blocked"] = max(0.0, still) / whole
        return found

    def _read(self) -> tuple[float, float] | None:
        """Seconds of the clock, and of the thread on a core or waiting for one; None where the system does not tell."""
        if self._clocks is None:
            return None
        try:
            ran, queued = os.pread(self._clocks, 100, 0).split()[:2]
        except (OSError, ValueError):
            return None
        return time.perf_counter(), (int(ran) + int(queued)) / 1e9


def _queued_but(thread: int) -> float:
    """Seconds that the other threads of this process have waited for a core so far; 0 where the system does not tell."""
    total = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that ended meanwhile
            total += int(path.read_text().split()[1]) if path.parent.name != str(thread) else 0
    return total / 1e9
