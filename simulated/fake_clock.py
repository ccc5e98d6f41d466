"""A clock for tests and simulations."""

from __future__ import annotations


class FakeClock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
