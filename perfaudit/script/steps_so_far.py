"""How many steps a training has made so far, by the updates of its optimizers. Pure.

It is asked while the script runs; what makes a step is found afterwards, by `rhythm`.
"""

from __future__ import annotations

from perfaudit.script.rhythm import LONGEST, MANY_ANEW


class StepsSoFar:
    """Updates by optimizer, as they come."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # updates by optimizer
        self._again: set[int] = set()  # optimizers that came up again behind another one
        # The optimizer of the last update, and how many it has had without another's between.
        self._last, self._row = -1, 0

    def add(self, optimizer: int) -> None:
        """Count an update. optimizer: its number."""
        if optimizer != self._last and optimizer in self._counts:
            self._again.add(optimizer)
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        self._row = self._row + 1 if optimizer == self._last else 1
        self._last = optimizer

    @property
    def steps(self) -> int:
        """Updates of the optimizer that is stepped least often; all updates where one is alone for longer than a round has.

        Those that are built anew again and again have one row of updates each, and count only where there are no others.
        """
        if self._row > LONGEST:
            return sum(self._counts.values())
        if len(self._counts) - len(self._again) < MANY_ANEW:
            return min(self._counts.values())
        return min((self._counts[each] for each in self._again), default=sum(self._counts.values()))

    @property
    def updates_per_step(self) -> int:
        """As many as there are for each of these steps."""
        return round(sum(self._counts.values()) / self.steps)
