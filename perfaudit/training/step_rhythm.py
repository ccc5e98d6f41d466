"""How many updates of its optimizers make a step of a script, from the order of the first ones. Pure."""

from __future__ import annotations

from perfaudit.errors import TargetError
from perfaudit.script.rhythm import ANEW, LONGEST, find_rhythm

MOST_ALONE = 64  # updates of one optimizer: the others belong to something else
MOST_UPDATES = 2 * LONGEST  # in which the order of several optimizers must repeat


class StepRhythm:
    """The updates so far, by the number of the optimizer, and how many of them make a step: 0 while that is not known.

    optimizers: see `rhythm.Rhythm`; None where there is one.
    """

    def __init__(self) -> None:
        self.updates: list[int] = []
        self.per_step = 0
        self.optimizers: frozenset[int] | None = None

    def find(self, optimizers_built: int, target: object) -> bool:
        """Whether it is known by now how many make a step. Raises TargetError where that will not be."""
        if optimizers_built < 2:
            self.per_step = 1
            return True
        updates, has_several = len(self.updates), len(set(self.updates)) > 1
        rhythm = find_rhythm(self.updates)
        if rhythm.optimizers == {ANEW} and updates < MOST_ALONE:
            return False  # the first round of many optimizers looks as if each were built anew
        if has_several and rhythm.is_regular and len(rhythm.steps) > 1:
            first, behind = rhythm.steps[0]
            if behind - first == 1 and ANEW not in rhythm.optimizers and _may_be_a_round(self.updates):
                return False
            self.per_step, self.optimizers = behind - first, rhythm.optimizers
            self.updates = self.updates[first:]
            return True
        if updates >= (MOST_UPDATES if has_several else MOST_ALONE):
            if has_several:
                raise TargetError(
                    f"{target}: the order in which its optimizers are updated does not repeat within {MOST_UPDATES} "
                    "updates, so what a step is cannot be told"
                )
            self.per_step = 1  # the others belong to something else
        return bool(self.per_step)

    @property
    def updates_to_end(self) -> int:
        """How many are wanting to the end of a step."""
        return -len(self.updates) % self.per_step

    @property
    def last_step(self) -> list[int]:
        """The optimizers of the last step, each once."""
        return list(dict.fromkeys(self.updates[-self.per_step :]))


def _may_be_a_round(order: list[int]) -> bool:
    """Whether optimizers that had their updates one behind the other may be those of a GAN, with many updates of either."""
    last_row = next((at for at, one in enumerate(reversed(order)) if one != order[-1]), len(order))
    return last_row <= LONGEST and len(order) < MOST_UPDATES
