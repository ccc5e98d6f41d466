"""The steps of a run, added up as they come: a run of weeks takes no more memory than one of minutes. Pure."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from perfaudit.script.rhythm import find_rhythm
from perfaudit.script.spans import PHASES

Json = dict[str, Any]  # Any: nested JSON
MOST_UPDATES = 8192  # that are kept one by one; of more, the order is looked for in as many at a time
LEFT = 4  # steps at the end of as many: the order must be seen to repeat in what comes after them, too
MOST_TIMES = (
    4096  # of steps of one kind that are kept for median and quartiles: those of a sample this large are 1 % off
)
MOST_KINDS = 64  # of steps; what comes after that is of the last kind
WARM_UP = (
    3  # steps at most that do not count: autotuning, compilation, the allocator; a quarter of them where there are few
)

Happenings = tuple[int, int]  # epochs begun, and calls of a model without gradients


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its seconds, those of its phases in the order of PHASES, and what happened in it."""

    seconds: float
    phases: tuple[float, ...]
    samples: int
    backwards: int
    backwards_in_update: int
    updates: int
    happenings: Happenings


@dataclass(slots=True)
class Kind:
    """Steps in which the same happened, added up. times: seconds of each, of many those of a sample."""

    count: int = 0
    seconds: float = 0.0
    phases: list[float] = field(default_factory=lambda: [0.0] * len(PHASES))
    samples: int = 0
    backwards: int = 0
    backwards_in_update: int = 0
    updates: int = 0
    times: list[float] = field(default_factory=list)

    def add(self, step: Step, chance: random.Random) -> None:
        """Add a step. Its time takes the place of another's where there are too many: reservoir sampling, Vitter 1985."""
        self.count += 1
        self.seconds += step.seconds
        self.phases = [before + more for before, more in zip(self.phases, step.phases, strict=True)]
        self.samples += step.samples
        self.backwards += step.backwards
        self.backwards_in_update += step.backwards_in_update
        self.updates += step.updates
        if len(self.times) < MOST_TIMES:
            self.times.append(step.seconds)
        elif (place := chance.randrange(self.count)) < MOST_TIMES:
            self.times[place] = step.seconds


@dataclass(slots=True)
class Tally:
    """Steps by what happened in them. steps: all of them, with the first ones, which do not count.

    is_regular: the order of updates repeats in all that was looked at. optimizers: numbers of those that were stepped.
    """

    steps: int = 0
    is_regular: bool = True
    optimizers: set[int] = field(default_factory=set)
    kinds: dict[Happenings, Kind] = field(default_factory=dict)
    _chance: random.Random = field(default_factory=lambda: random.Random(0))

    def fold(self, updates: Sequence[Json], is_last: bool = False) -> list[Json]:
        """Add the whole steps that these updates make, but for the last `LEFT`; the updates behind those that were added.

        is_last: there will be no other updates, so that all are added, and the first steps may be few.
        """
        rhythm = find_rhythm([update["optimizer"] for update in updates])
        bounds = rhythm.bounds if is_last else rhythm.bounds[:-LEFT]
        found = [_step(updates[first:behind]) for first, behind in itertools.pairwise(bounds)]
        skipped = (warm_up(len(found)) if is_last else WARM_UP) if not self.steps else 0
        for step in found[skipped:]:
            self._kind(step).add(step, self._chance)
        self.steps += len(found)
        self.is_regular &= rhythm.is_regular
        self.optimizers |= {update["optimizer"] for update in updates if update["optimizer"] >= 0}
        behind = bounds[-1] if found else len(updates) // 2
        return list(updates[behind:])

    def with_rest(self, updates: Sequence[Json]) -> Tally:
        """This one with the last updates."""
        whole = copy.deepcopy(self)
        whole.fold(updates, is_last=True)
        return whole

    @property
    def usual(self) -> Kind:
        """The steps in which happened what happens in most; an empty kind where no step counts."""
        return max(self.kinds.values(), key=lambda kind: kind.count, default=Kind())

    @property
    def uneven(self) -> list[Kind]:
        """The other kinds."""
        usual = self.usual
        return [kind for kind in self.kinds.values() if kind is not usual]

    def _kind(self, step: Step) -> Kind:
        if step.happenings in self.kinds or len(self.kinds) < MOST_KINDS:
            return self.kinds.setdefault(step.happenings, Kind())
        return self.kinds[next(reversed(self.kinds))]


def warm_up(steps: int) -> int:
    """How many of the first steps do not count: one at least, as the start of the script is in it."""
    return max(1, min(WARM_UP, steps // 4))


def samples_of(updates: Sequence[Json]) -> int:
    """How many samples a step had: those of its batches; of what its models were called with where it took no batch.

    Optimizers that are updated one after the other on the same batch train on it together.
    """
    took = [update for update in updates if update["batches"]]
    return sum(update["samples"] for update in took or updates)


def _step(updates: Sequence[Json]) -> Step:
    return Step(
        sum(update["seconds"] for update in updates),
        tuple(map(sum, zip(*(update["phases"] for update in updates), strict=True))),
        samples_of(updates),
        sum(update["backwards"] for update in updates),
        sum(update["backwards_in_update"] for update in updates),
        len(updates),
        (sum(update["epochs"] for update in updates), sum(update["without_gradients"] for update in updates)),
    )
