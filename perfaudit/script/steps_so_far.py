"""How many steps a training has made so far, by the updates of its optimizers. Pure.

It is asked while the script runs; what makes a step is found afterwards, by `rhythm`.
"""

from __future__ import annotations

from perfaudit.script.rhythm import LONGEST, MANY_ANEW


class StepsSoFar:
    """Updates by optimizer, as they come."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # updates by optimizer
        self._rows: dict[int, int] = {}  # how often an optimizer came up, first or behind another one
        # The optimizer of the last update, and how many it has had without another's between.
        self._last, self._row = -1, 0

    def add(self, optimizer: int) -> None:
        """Count an update. optimizer: its number."""
        if optimizer != self._last:
            self._rows[optimizer] = self._rows.get(optimizer, 0) + 1
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        self._row = self._row + 1 if optimizer == self._last else 1
        self._last = optimizer

    @property
    def steps(self) -> int:
        """How often the optimizer came up that did so least often; all updates where one is alone for longer than a round has.

        As long as none has come up again, the updates of the one that is stepped least often. Those that are built anew again
        and again have one row of updates each, and count only where there are no others. One that trained alone before the
        others does not count either.
        """
        return self._steps_of_updates()[0]

    @property
    def is_in_first_round(self) -> bool:
        """Whether a second optimizer has come up, and may be the end of a first round: none has come up again yet.

        Until one has, a round of many updates of either looks like trainings one behind the other.
        """
        is_of_several = 1 < len(self._rows) < MANY_ANEW and self._row <= LONGEST
        return is_of_several and all(rows == 1 for rows in self._rows.values())

    @property
    def updates_per_step(self) -> int:
        """As many as there are for each of these steps."""
        steps, updates = self._steps_of_updates()
        return round(updates / steps)

    def _steps_of_updates(self) -> tuple[int, int]:
        """The steps, and how many updates they have together."""
        whole = sum(self._counts.values())
        if self._row > LONGEST:
            return whole, whole
        again = {one for one, rows in self._rows.items() if rows > 1}
        if not again:
            return (min(self._counts.values()) if len(self._counts) < MANY_ANEW else whole), whole
        is_anew = len(self._rows) - len(again) >= MANY_ANEW
        rounds = min(rows for one, rows in self._rows.items() if one in again or not is_anew)
        if whole <= (rounds + 1) * LONGEST:  # the last one has begun
            return rounds, whole
        rounds, theirs = min(self._rows[one] for one in again), sum(self._counts[one] for one in again)
        return (rounds, theirs) if len(again) > 1 and theirs <= rounds * LONGEST else (whole, whole)
