"""Of which steps the phases are timed: all, where that costs little of a step; else some of them, chosen at random. Pure."""

from __future__ import annotations

import math
import random

FIRST_UPDATES = 12  # all of them are watched
FIRST_STEPS = 6  # the same where a step has several updates: the first three count nowhere
FIRST_SECONDS = 0.15  # of training, in which all are watched: a short run of short steps has enough of them
MOST_COST = 0.004  # of the time, on average, for timing phases
# That a step pays for an event, an estimate from the trainings of benchmarks/watch_overhead.py: more than our code takes by
# itself, because the script's own work takes it out of the processor's caches.
EVENT_SECONDS = 8e-6
LEAST_SHARE = 1 / 64  # of the updates, however short they are


class WatchedSteps:
    """Says which updates are watched: of what happens between them, phases are timed.

    No rhythm of the script, such as a batch that is logged every ten steps, is met again and again by a random choice. Several
    optimizers make one step together, so that as many updates in a row are watched as have a whole one among them.
    """

    def __init__(self, most_cost: float = MOST_COST, least_row: int = 1) -> None:
        self._most_cost, self._least_row = most_cost, least_row
        self._chance = random.Random(0)  # not the script's
        self.share = 1.0
        self._row = 1  # updates that are watched one after the other
        self._is_watched = True

    def weigh(self, updates: int, seconds: float, events: float, updates_per_step: int) -> None:
        """Choose the share that is watched. events: that an update has on average, when it is watched."""
        self.share = 1.0  # also where it is seen late that a step has many updates
        if updates >= max(FIRST_UPDATES, FIRST_STEPS * updates_per_step) and seconds >= FIRST_SECONDS:
            self.share = min(
                1.0, max(LEAST_SHARE, self._most_cost * seconds / updates / (EVENT_SECONDS * max(events, 1.0)))
            )
            self._row = max(self._least_row, 2 * updates_per_step - 1)

    def next_row(self) -> tuple[bool, int]:
        """Whether the next updates are watched, and how many of them: a row that is watched, or those before the next one."""
        self._is_watched = not self._is_watched or self.share >= 1.0
        if self._is_watched:
            return True, self._row
        mean = self._row * (1.0 / self.share - 1.0)  # of updates between two rows
        chance = 1.0 / (mean + 1.0)  # that a row begins with the next update
        skipped = int(math.log(1.0 - self._chance.random()) / math.log(1.0 - chance))
        if skipped:
            return False, skipped
        self._is_watched = True
        return True, self._row
