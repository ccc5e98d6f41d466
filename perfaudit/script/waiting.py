"""Who waits for whom while a script trains: the device for the host, or the training's thread for something else. Child only."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import threading
import time
from collections import deque
from typing import Any

from perfaudit.target.accelerator import Accelerator, accelerator_of, device_in_use
from perfaudit.target.queue_time import queued_seconds

# Looks between which spans count only where there are no later ones: of these the start of the script takes most.
FIRST = 3
KEPT = 512  # spans between two looks of which it is kept how long the thread stood still, the last ones
LONG = 3.0  # times the median: an update that took longer holds an evaluation, or the beginning of an epoch
_SCHEDULED = "/proc/thread-self/schedstat"  # nanoseconds on a core, and waiting for one, of who opens it; Linux

_Clocks = tuple[float, float, float, float]  # as `Waiting._read` has them


class Waiting:
    """What is seen at the ends of some updates, by the thread that trains."""

    def __init__(self) -> None:
        self._looks = 0
        self._accelerator: Accelerator | None = None
        self._mark: Any = None  # Any: an event of the device
        self._marks = self._behind = 0
        self._thread = 0
        self._clocks: int | None = None  # a file, of the thread that trains
        self._last: _Clocks | None = None
        # Seconds between two looks, those of standing still, and those that all threads waited for a core.
        self._early: list[tuple[float, float, float]] = []  # between the first looks
        self._spans: deque[tuple[float, float, float]] = deque(maxlen=KEPT)

    def end_update(self, is_next: bool = True) -> None:
        """An update has been handed to the device, or is done where there is none.

        is_next: whether the one before it was told, too.
        """
        self._looks += 1
        if self._looks == 1:
            with contextlib.suppress(OSError):
                self._clocks = os.open(_SCHEDULED, os.O_RDONLY)
            self._thread = threading.get_native_id()
            if "torch" in sys.modules and (device := device_in_use()):
                self._accelerator = accelerator_of(sys.modules["torch"].device(device))
        now, before = self._read(), self._last if is_next else None
        if now is not None and before is not None:
            (self._spans if self._looks > FIRST else self._early).append(_span(before, now))
        self._last = now
        if self._accelerator is not None and self._looks >= FIRST:
            if self._mark is not None and is_next:
                self._marks += 1
                self._behind += not self._accelerator.has_passed(self._mark)
            self._mark = self._accelerator.mark()

    def facts(self) -> dict[str, float]:
        """Shares: `behind` of updates at whose end the device had not come to the end of the one before, `blocked` of the time
        of usual updates in which the thread neither ran nor waited for a core, `queued` of the same time in which threads of
        the process waited for one, all together: more than 1 where several did. What is not known is left out.

        On a busy machine the thread stands still where it waits for other threads of its process that wait for a core: as
        long as those did, all together, is left out of each update.
        """
        found = {}
        if self._marks:
            found["behind"] = self._behind / self._marks
        spans = self._spans or self._early
        longest = LONG * statistics.median([wall for wall, *_ in spans] or [0.0])
        usual = [span for span in spans if span[0] <= longest]
        if whole := sum(wall for wall, *_ in usual):
            found["blocked"] = sum(still for _, still, _ in usual) / whole
            found["queued"] = sum(queued for *_, queued in usual) / whole
        return found

    def _read(self) -> _Clocks | None:
        """Seconds of the clock, of the thread on a core or waiting for one, of its process' other threads waiting for one, and of
        the thread waiting for one.

        None where the system does not tell, and with a device, of which `behind` tells more.
        """
        if self._clocks is None or self._accelerator is not None or threading.get_native_id() != self._thread:
            return None
        try:
            queued = int(os.pread(self._clocks, 100, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return None
        # The file counts time on a core in ticks of some milliseconds, in which short steps begin and end.
        return time.perf_counter(), time.thread_time() + queued, queued_seconds(but=self._thread), queued


def _span(before: _Clocks, now: _Clocks) -> tuple[float, float, float]:
    """Seconds between two looks, of them standing still, and of all threads waiting for a core.

    A thread that ended takes what it waited with it.
    """
    wall, ran, queued, own = (new - old for new, old in zip(now, before, strict=True))
    return wall, max(0.0, wall - ran - max(0.0, queued)), own + max(0.0, queued)
