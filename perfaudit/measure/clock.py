"""Time as the scheduler sees it, so that tests can put a clock in that takes exactly as long as told."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a scale that only moves forward."""

    def now(self) -> float: ...


# Of its time, by which a race ends early at most, for a long block that may come again: an evaluation of half a minute, seen
# once, would take half of a race of one minute.
MOST_KEPT = 0.1


class WallClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()


class Deadline:
    """A span of time that runs out.

    kept: seconds by which it ends early, see `keep`.
    """

    kept = 0.0

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock = clock
        self._end = clock.now() + seconds

    def seconds_left(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._end - self.kept - self._clock.now())

    def keep(self, seconds: float) -> None:
        """End so much earlier: what is begun may take as long, and is to end in time."""
        self.kept = max(self.kept, seconds)

    def part(self, seconds: float) -> Deadline:
        """Another span, which begins now on the same clock."""
        return Deadline(seconds, self._clock)

    def share_of_end(self) -> float:
        """Of the error that a race may still make, the part that the look at its end may: all of it where there is no other end.

        It is less where the race could have ended at another time, and nothing where what was measured has chosen the time.
        """
        return 1.0

    def goes_on(self) -> bool:
        """Whether there is more time all the same, asked when a race was judged at its end."""
        return False
