"""How long the training's thread has waited for a core that others held. Child only."""

from __future__ import annotations

import os
import threading

CLOCKS = "/proc/thread-self/schedstat"  # nanoseconds on a core, nanoseconds of waiting for one, turns; Linux


class CoreQueue:
    """The clock of one thread, that which asks first. Asking takes some microseconds, as the file is held open."""

    def __init__(self) -> None:
        self._thread = 0
        self._clocks = -1
        os.register_at_fork(after_in_child=self._forget)

    def seconds(self) -> float:
        """Seconds of waiting so far; 0 in other threads, and where the system does not say."""
        here = threading.get_ident()
        if not self._thread:
            self._thread = here
            self._open()
        if here != self._thread or self._clocks < 0:
            return 0.0
        return int(os.pread(self._clocks, 100, 0).split()[1]) / 1e9

    def _open(self) -> None:
        try:
            self._clocks = os.open(CLOCKS, os.O_RDONLY | os.O_CLOEXEC)
            int(os.pread(self._clocks, 100, 0).split()[1])
        except (OSError, ValueError, IndexError):
            self._clocks = -1

    def _forget(self) -> None:
        """In a forked child: its threads are others."""
        self._thread, self._clocks = 0, -1
