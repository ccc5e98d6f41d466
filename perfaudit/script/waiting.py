"""Who waits for whom while a script trains: the device for the host, or the training's thread for something else. Child only."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from perfaudit.target.accelerator import Accelerator, accelerator_of, device_in_use

FIRST = 3  # updates that are left out: of these the start of the script takes most
_SCHEDULED = Path("/proc/thread-self/schedstat")  # nanoseconds on a core, and waiting for one; Linux


class Waiting:
    """What is counted at the end of each update, by the thread that trains."""

    def __init__(self) -> None:
        self._updates = 0
        self._accelerator: Accelerator | None = None
        self._mark: Any = None  # Any: an event of the device
        self._marks = self._behind = 0
        self._began: tuple[float, float, float] | None = None

    def end_update(self) -> None:
        """An update has been handed to the device, or is done where there is none."""
        self._updates += 1
        if self._updates <= FIRST:
            return
        if self._began is None:
            self._began = _clocks()
            if "torch" in sys.modules and (device := device_in_use()):
                self._accelerator = accelerator_of(sys.modules["torch"].device(device))
        if self._accelerator is not None:
            if self._mark is not None:
                self._marks += 1
                self._behind += not self._accelerator.has_passed(self._mark)
            self._mark = self._accelerator.mark()

    def facts(self) -> dict[str, float]:
        """Shares: `behind` of updates at whose end the device had not come to the end of the one before, `blocked` of the time
        in which the thread neither ran nor waited for a core. What is not known is left out.
        """
        found = {}
        if self._marks:
            found["behind"] = self._behind / self._marks
        if self._began is not None and (now := _clocks()) is not None:
            wall, ran, queued = (after - before for before, after in zip(self._began, now, strict=True))
            if wall > 0:
                found["blocked"] = max(0.0, 1 - (ran + queued) / wall)
        return found


def _clocks() -> tuple[float, float, float] | None:
    """Seconds of the clock, of this thread on a core, and of its waiting for one; None where the system does not tell."""
    try:
        ran, queued = _SCHEDULED.read_text().split()[:2]
    except (OSError, ValueError):
        return None
    return time.perf_counter(), int(ran) / 1e9, int(queued) / 1e9
