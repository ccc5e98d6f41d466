"""Seconds of each part of a training step, timed inside the step: on the device's own clock where it has one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from perfaudit.target.accelerator import Accelerator

# In the order of a step. "loading" and "transfer" are what the host waits for; the rest is computing.
PHASES = ("loading", "transfer", "zero_grad", "forward", "backward", "optimizer", "average")
HOST = " (host)"


class Phases:
    """Adds up seconds by phase. Where the device has a clock, events stand in its queue, so that the host need not wait for
    them; what the host itself takes to launch a phase is kept beside it, under the phase's name and HOST. Of a device
    without one, the host's clock would tell what launching takes: only what the host does itself is timed there, unless it is
    `waiting` after each phase.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._on_device = accelerator.has_clock
        self.needs_waits = not accelerator.has_clock and not accelerator.is_host
        self._waits = False
        self._seconds: dict[str, float] = {}
        self._host = 0.0
        self._events: list[tuple[str, Any, Any]] = []  # name, event before, after
        self._last: Any = None

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, the host waits for the device after each phase, which takes time itself: for steps that are not timed."""
        self._waits = self.needs_waits
        try:
            yield
        finally:
            self._waits = False

    def begin(self) -> None:
        """A stretch of phases begins now."""
        if self._is_blind():
            return
        self._last, self._host = self._now(), time.perf_counter()

    def end(self, name: str) -> None:
        """What ran since the last mark was this phase; the next one begins."""
        if self._is_blind():
            return
        now = self._now()
        if self._on_device:
            self._events.append((name, self._last, now))
            host = time.perf_counter()
            self.add(name + HOST, host - self._host)
            self._host = host
        else:
            self.add(name, now - self._last)
        self._last = now

    def add(self, name: str, seconds: float) -> None:
        """Seconds of the host in a phase, timed by the caller."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call; the device must have been waited for."""
        for name, before, after in self._events:
            self.add(name, self._accelerator.seconds_between(before, after))
        found = self._seconds
        self._seconds, self._events = {}, []
        return found

    def _is_blind(self) -> bool:
        return self.needs_waits and not self._waits

    def _now(self) -> Any:
        if self._waits:
            self._accelerator.synchronize()
        return self._accelerator.event() if self._on_device else time.perf_counter()
