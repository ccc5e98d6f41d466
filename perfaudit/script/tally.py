"""The steps of a run, added up as they come: a run of weeks takes no more memory than one of minutes. Pure."""

from __future__ import annotations

import collections
import copy
import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfaudit.script.rhythm import ANEW, find_rounds
from perfaudit.script.spans import PHASES

Json = dict[str, Any]  # Any: nested JSON
MOST_UPDATES = 8192  # that are kept one by one; of more, the order is looked for in as many at a time
LEFT = 4  # steps at the end of as many: the order must be seen to repeat in what comes after them, too
# Times of steps of one kind that are kept for median and quartiles: a sample this large is 1 % off.
MOST_TIMES = 4096
SAME = 0.5  # of the most frequent kind; two that alternate are as frequent, and chance says which is ahead
MOST_KINDS = 64  # of steps; what comes after that is of the last kind
# First steps that do not count: autotuning, compilation, the allocator; at most a quarter of them where there are few.
WARM_UP = 3

Happenings = tuple[int, int]  # epochs begun, and calls of a model without gradients
What = tuple[bool, Happenings]  # whether the phases were timed, and what happened


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its seconds, those of its phases in the order of PHASES, and what happened in it.

    phases: () where they were not timed, and then there are neither samples nor backward passes.
    """

    seconds: float
    phases: tuple[float, ...]
    samples: int
    backwards: int
    backwards_in_update: int
    gradients: int
    zeroed: int
    updates: int
    happenings: Happenings


@dataclass(slots=True)
class Kind:
    """Steps in which the same happened, added up. times: seconds of each, of many those of a sample.

    watched: of how many the phases were timed; watched_seconds, phases, samples and backwards are of these. told: of how many of
    these it is known how many samples they had.
    """

    count: int = 0
    seconds: float = 0.0
    watched: int = 0
    watched_seconds: float = 0.0
    phases: list[float] = field(default_factory=lambda: [0.0] * len(PHASES))
    samples: int = 0
    told: int = 0
    backwards: int = 0
    backwards_in_update: int = 0
    gradients: int = 0
    zeroed: int = 0
    updates: int = 0
    times: list[float] = field(default_factory=list)

    def add(self, step: Step, chance: random.Random) -> None:
        """Add a step. Its time takes the place of another's where there are too many: reservoir sampling, Vitter 1985."""
        self.count += 1
        self.seconds += step.seconds
        if step.phases:
            self.watched += 1
            self.watched_seconds += step.seconds
            self.phases = [before + more for before, more in zip(self.phases, step.phases, strict=True)]
        self.samples += step.samples
        self.told += step.samples > 0
        self.backwards += step.backwards
        self.backwards_in_update += step.backwards_in_update
        self.gradients += step.gradients
        self.zeroed += step.zeroed
        self.updates += step.updates
        if len(self.times) < MOST_TIMES:
            self.times.append(step.seconds)
        elif (place := chance.randrange(self.count)) < MOST_TIMES:
            self.times[place] = step.seconds

    def with_counted(self, counted: Kind) -> Kind:
        """These and others, of which only the time is known."""
        whole = copy.deepcopy(self)
        whole.count += counted.count
        whole.seconds += counted.seconds
        whole.updates += counted.updates
        rate = min((len(kind.times) / kind.count for kind in (self, counted) if kind.count), default=0.0)
        chance = random.Random(0)
        # Both are sampled at the same rate, so that each has its share.
        whole.times = [time for kind in (self, counted) for time in chance.sample(kind.times, round(rate * kind.count))]
        return whole


@dataclass(slots=True)
class Tally:
    """Steps by what happened in them. steps: all of them, with the first ones, which do not count.

    is_regular: the order of updates repeats in all that was looked at. optimizers: numbers of those that were stepped, see
    `rhythm.Rhythm`.
    """

    steps: int = 0
    is_regular: bool = True
    optimizers: set[int] = field(default_factory=set)
    kinds: dict[What, Kind] = field(default_factory=dict)
    _chance: random.Random = field(default_factory=lambda: random.Random(0))

    def fold(self, updates: Sequence[Json], is_last: bool = False) -> list[Json]:
        """Add the whole steps that these updates make, but for the last `LEFT`; the updates behind those that were added.

        is_last: there will be no other updates, so that all are added, and the first steps may be few.
        """
        rhythm = find_rounds([update["optimizer"] for update in updates])
        bounds = rhythm.bounds if is_last else rhythm.bounds[:-LEFT]
        found = [_step(updates[first:behind], rhythm.optimizers) for first, behind in itertools.pairwise(bounds)]
        skipped = (warm_up(len(found)) if is_last else WARM_UP) if not self.steps else 0
        for step in found[skipped:]:
            self._kind(step).add(step, self._chance)
        self.steps += len(found)
        self.is_regular &= rhythm.is_regular
        self.optimizers |= {number for number in rhythm.optimizers if number >= 0}
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
        watched, counted = self._usual()
        return watched.with_counted(counted)

    @property
    def uneven(self) -> list[Kind]:
        """The other kinds."""
        usual = self._usual()
        return [kind for kind in self.kinds.values() if not any(kind is each for each in usual)]

    def _usual(self) -> tuple[Kind, Kind]:
        """Of the steps whose phases were timed those of one kind, and of the others those in which the same happened.

        What a call counts for may differ between the two: where hardly any of the others are of that kind, most of them.
        """
        watched, happenings = self._most(is_watched=True)
        counted, _ = self._most(is_watched=False)
        same = self.kinds.get((False, happenings), Kind())
        is_same = watched.count > 0 and same.count >= SAME * counted.count
        return watched, same if is_same else counted

    def _most(self, is_watched: bool) -> tuple[Kind, Happenings]:
        kinds = [(kind, happenings) for (is_timed, happenings), kind in self.kinds.items() if is_timed == is_watched]
        return max(kinds, key=lambda item: item[0].count, default=(Kind(), (0, 0)))

    def _kind(self, step: Step) -> Kind:
        what = bool(step.phases), step.happenings
        if what in self.kinds or len(self.kinds) < MOST_KINDS:
            return self.kinds.setdefault(what, Kind())
        return self.kinds[next(reversed(self.kinds))]


def warm_up(steps: int) -> int:
    """How many of the first steps do not count: one at least, as the start of the script is in it."""
    return max(1, min(WARM_UP, steps // 4))


def samples_of(updates: Sequence[Json], optimizers: Collection[int] | None = None) -> int:
    """How many samples a step had: those of its batches; of what its models were called with where it took no batch.

    Optimizers that are updated one after the other on the same batch train on it together. Without a batch, each optimizer of a
    round trains on the samples of the round, as the two of a GAN do: they are those of the one that has most. What models were
    called with again, and nothing else, counts once.
    optimizers: see `rhythm.Rhythm`; None where none is built anew.
    """
    took = [update["samples"] for update in updates if update["batches"]]
    if took:
        return sum(took)
    by_optimizer: collections.Counter[int] = collections.Counter()
    for at, update in enumerate(updates):
        if not at or not update.get("same_inputs"):
            number = update["optimizer"]
            by_optimizer[number if optimizers is None or number in optimizers else ANEW] += update["samples"]
    return max(by_optimizer.values(), default=0)


def _step(updates: Sequence[Json], optimizers: Collection[int]) -> Step:
    is_watched = all(update["phases"] for update in updates)  # of part of a step nothing is said
    return Step(
        sum(update["seconds"] for update in updates),
        tuple(map(sum, zip(*(update["phases"] for update in updates), strict=True))) if is_watched else (),
        samples_of(updates, optimizers) if is_watched else 0,
        sum(update["backwards"] for update in updates) if is_watched else 0,
        sum(update["backwards_in_update"] for update in updates) if is_watched else 0,
        sum(update["gradients"] for update in updates) if is_watched else 0,
        sum(update["zeroed"] for update in updates) if is_watched else 0,
        len(updates),
        (sum(update["epochs"] for update in updates), sum(update["without_gradients"] for update in updates)),
    )
