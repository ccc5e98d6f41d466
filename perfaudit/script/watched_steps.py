"""Of which steps the phases are timed: all, where that costs little of a step; else some of them, chosen at random. Pure."""

from __future__ import annotations

import random

FIRST_UPDATES = 12  # all of them are watched
FIRST_SECONDS = 0.15  # of training, in which all are watched: a short run of short steps has enough of them
MOST_COST = 0.004  # of the time, on average, for timing phases
EVENT_SECONDS = (
    8e-6  # that a step pays for an event, measured by benchmarks/watch_overhead.py: the script's own work takes
)
# our code out of the processor's caches
LEAST_SHARE = 1 / 64  # of the updates, however short they are


class WatchedSteps:
    """Says after each update whether what happens until the next one is timed.

    No rhythm of the script, such as a batch that is logged every ten steps, is met again and again by a random choice. Several
    optimizers make one step together, so that as many updates in a row are watched as have a whole one among them.
    """

    def __init__(self) -> None:
        self._chance = random.Random(0)  # not the script's
        self._share = 1.0
        self._begins = 1.0  # how likely a row begins
        self._row = 1  # updates that are watched one after the other
        self._left = 0

    def weigh(self, updates: int, seconds: float, events: float, updates_per_step: int) -> None:
        """Choose how many are watched. events: that an update has on average, when it is watched."""
        if updates < FIRST_UPDATES or seconds < FIRST_SECONDS:
            return
        self._share = min(1.0, max(LEAST_SHARE, MOST_COST * seconds / updates / (EVENT_SECONDS * max(events, 1.0))))
        self._row = max(1, 2 * updates_per_step - 1)
        self._begins = self._share / (self._row - self._share * self._row + self._share)

    def has_next(self) -> bool:
        """Whether the next update is watched."""
        if self._share >= 1.0:
            return True
        if self._left > 0:
            self._left -= 1
            return True
        if self._chance.random() < self._begins:
            self._left = self._row - 1
            return True
        return False
