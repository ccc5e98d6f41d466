"""Which variant runs in which step of one training: quads of base and candidate, interleaved, until each is decided.

Knows no torch, no process and no clock: whoever drives the steps asks what is to run next, and says afterwards how long it
took. So the loop may be ours or the user's.

A quad is four blocks in the order base, candidate, candidate, base: a drift of the machine that is steady within a quad
cancels. The last block of a quad is the first of the next. Candidates take turns in random order, so that all of them see the
same moods of the machine: a quad each in a round, and several of those whose quads are short beside one whose quads are long.
One that is decided leaves, and its time goes to the others. Beside them runs a control, which is the base's own code swapped in,
or a twin of it: what it differs from the base by is the error of this race, as far as candidates are put in place in that way.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from perfaudit.measure.pace import PLAIN, Pace, steps_of_quad
from perfaudit.measure.quads import (
    USUAL_LOOK,
    Interval,
    error_of,
    interval_of_quads,
    is_hopeful,
    is_last_look,
    is_look,
    quads_to_look,
)

# Keys of the training as it is, and of identical code that is put in place as candidates are.
BASE, CONTROL = "base", "control"
DECIDED = "decided"
FAR_SLOWER = 4.0  # times the base's step, in each of two looks at one step: whatever the noise, it is not going to win
# After which one that looks unable to gain what it must is left; that can miss a gain, and invent none.
FUTILE_QUADS = (4, 8)
# Fewer tell it of one that is slower than the base by so much of a step, and that by so many standard errors.
FAR_FROM_IT_QUADS, FAR_FROM_IT, FAR_ERRORS = 2, 0.1, 3.0
FUTILE = "looked no faster"
BEATEN = "another setting is faster"
LOOKS_BEATEN = 2.0  # standard errors of each of two, by which the middles of their first quads must be apart
# High over low of a rival's ratio, below which it is known well enough: its standard error is then 1 %.
NEAR = 1.10
# Quads in a round of one whose quads are short, beside loaders whose turns are long: otherwise those take most of the time, and a
# patch that three steps would tell of waits for twenty. With four, loaders came to no look in a minute (photo_resnet, 2 cores).
MOST_QUADS = 2
FAILED = "with it"  # how the reason begins why a candidate failed, which says nothing of its speed
UNDECIDED = "undecided after the last look"  # a further one would be a further chance to be wrong


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to run next: so many steps of the variant with this key (BASE for the training as it is); is_timed: they count."""

    key: str
    steps: int
    is_timed: bool


@dataclass(frozen=True, slots=True)
class _Timed:
    """A block that was timed: its steps, and the seconds of all of them."""

    steps: int
    seconds: float


@dataclass(slots=True)
class Entrant:
    """A candidate in a race: log ratios of its quads in the order they were run, and why it left, "" while it has not.

    seconds: of one step, block by block.
    """

    key: str
    log_ratios: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    left: str = ""
    interval: Interval | None = None

    @property
    def is_open(self) -> bool:
        """Whether more quads are wanted."""
        return not self.left


@dataclass(frozen=True, slots=True)
class Terms:
    """What a race asks. Keys of `leasts` are candidates that must gain another share of the step than `least`.

    least: the share of the step that a candidate must gain, and seed: of the order; see `Race`. base: the key of that which the
    others are compared with. rivals: only the fastest is wanted. former: entrants as another process left them, in which this
    race began: they keep their quads, so that no look is made twice.
    """

    least: float | None
    seed: int
    base: str = BASE
    rivals: bool = False
    leasts: Mapping[str, float] = field(default_factory=dict)
    former: Sequence[Entrant] = ()


@dataclass(slots=True)
class Race:
    """The quads of several candidates and a control against the base.

    base: the key of the variant that the others are compared with; one that is not the training as it is, is all patches, and
    the others lack some of them: ratios are then of the base over the others, and nobody leaves for looking slow. least: the
    share of the step that a candidate must gain; one that was shown to gain it, or to be unable to, is decided; None where
    whoever asks decides, and nobody leaves but for a failure. pace: of
    those that have none of their own in `paces`; steps of a block count evenly, so the base's may be shorter. rivals: the
    candidates are settings of one thing, of which the fastest is wanted: one that cannot be that leaves, and those that
    can are raced until they are told apart or known to NEAR. leasts: in the place of `least`, by key. former: see `Terms`.
    Results are in `entrants` at any time, so that an interruption keeps them.
    """

    candidates: Sequence[str]
    control: str
    least: float | None
    seed: int
    pace: Pace = PLAIN
    paces: Mapping[str, Pace] = field(default_factory=dict)
    base: str = BASE
    rivals: bool = False
    leasts: Mapping[str, float] = field(default_factory=dict)
    former: Sequence[Entrant] = ()
    entrants: dict[str, Entrant] = field(init=False)

    def __post_init__(self) -> None:
        self.entrants = {key: Entrant(key) for key in (*self.candidates, self.control)}
        for entrant in self.former:
            if entrant.key in self.entrants:
                self.entrants[entrant.key] = entrant
        for entrant in self.former:
            if entrant.key in self.entrants:
                self._look_at(entrant)

    def fail(self, key: str, reason: str) -> None:
        """Take a candidate out: a step with it raised, or it is far slower. Nothing is said of its ratio."""
        self.entrants[key].left, self.entrants[key].interval = reason, None

    def end(self, share: float = 1.0) -> None:
        """Judge all that are open by what there is: the time is over. share: see `quads.interval_of_quads`."""
        self._judge(ended=share)

    def turns(self) -> Generator[Turn, float, None]:
        """What runs in turn. Send the seconds of each turn, all its steps together, when it has ended.

        NaN for a turn of which a step raised now and then, as it does without the variant too: its quad does not count.
        """
        order = random.Random(self.seed)
        yield from self._warm_all()
        last: _Timed | None = None
        while self._wants_more():
            racing = self._racing()
            waiting = [entrant for entrant in racing for _ in range(self._quads_in_round(entrant, racing))]
            order.shuffle(waiting)
            for entrant in waiting:
                if entrant.is_open:
                    last = yield from self._quad(entrant, last)
            self._judge()

    def _warm_all(self) -> Generator[Turn, float, None]:
        """The first steps of all. What lacks patches ran in a race before, so that only its loader's queues are filled again."""
        warm_up = self._pace(self.base).warm_up
        if not warm_up:
            return
        if self._lack_patches:
            for key in (self.base, *self.entrants):
                if self._pace(key).warm_up > PLAIN.warm_up:
                    yield Turn(key, self._pace(key).warm_up, False)
            return
        yield Turn(self.base, warm_up, False)
        base = yield Turn(self.base, 1, False)
        for entrant in self.entrants.values():
            if entrant.is_open:
                yield from self._warm(entrant, base)

    def _warm(self, entrant: Entrant, base: float) -> Generator[Turn, float, None]:
        """The first steps of an entrant. One that is far slower than the base, of which a step takes so long, leaves."""
        yield Turn(entrant.key, self._pace(entrant.key).warm_up, False)
        looks: list[float] = []
        while entrant.is_open and len(looks) < 2:
            look = yield Turn(entrant.key, 1, False)
            looks.append(look)
            if not looks[-1] > FAR_SLOWER * base:  # nor where one of the two is not known
                return
        if entrant.is_open and entrant.key != self.control and not self._lack_patches and self.least is not None:
            self.fail(entrant.key, f"{min(looks) / base:.0f} times as slow in its first steps")

    @property
    def _lack_patches(self) -> bool:
        return self.base != BASE

    def _pace(self, key: str) -> Pace:
        return self.paces.get(key, self.pace)

    def _wants_more(self) -> bool:
        """Whether a candidate is open; the control is raced alone only where whoever asks decides."""
        return any(self.entrants[key].is_open for key in self.candidates) or (
            self.least is None and not self.candidates
        )

    def _racing(self) -> list[Entrant]:
        """Who takes part in the next round: all that are open, or those that look as if they gained something, and the control.

        Once the first quads have shown who looks so, the others wait until these are decided, so that a short time decides some
        of them. Who waits keeps its quads. Its looks come after as many quads as they would have.
        """
        open_ones = [entrant for entrant in self.entrants.values() if entrant.is_open]
        hopeful = [entrant for entrant in open_ones if self._is_hopeful(entrant)]
        if not hopeful or any(len(each.log_ratios) < FUTILE_QUADS[0] for each in open_ones):
            return open_ones
        return [entrant for entrant in open_ones if entrant in hopeful or entrant.key == self.control]

    def _is_hopeful(self, entrant: Entrant) -> bool:
        """Whether a candidate gains what it must by the middle of its quads, and that by more than a standard error."""
        is_one = entrant.key != self.control and not (self._lack_patches or self.rivals or self.least is None)
        if not is_one or len(entrant.log_ratios) < FUTILE_QUADS[0]:
            return False
        least = self._least(entrant)
        assert least is not None
        return is_hopeful(entrant.log_ratios, self._others(entrant), least)

    def _quads_in_round(self, entrant: Entrant, racing: Sequence[Entrant]) -> int:
        """How many quads it has in this round: as many as fit into the longest one of another, and none beyond its next look."""
        base = self._pace(self.base)
        longest = max(steps_of_quad(self._pace(each.key), base) for each in racing)
        even = quads_in_round(steps_of_quad(self._pace(entrant.key), base), longest)
        return min(even, quads_to_look(len(entrant.log_ratios)))

    def _quad(self, entrant: Entrant, last: _Timed | None) -> Generator[Turn, float, _Timed | None]:
        """A quad of an entrant; `last` is the base's block before it. Gives the base's block behind it, None for none."""
        block, of_base = self._pace(entrant.key).block, self._pace(self.base).block
        before = last if last is not None else (yield from self._timed(self.base, of_base))
        first = yield from self._timed(entrant.key, block)
        if not entrant.is_open:  # it failed meanwhile
            return None
        second = yield Turn(entrant.key, block, True)
        if not entrant.is_open:
            return None
        after = yield from self._timed(self.base, of_base)
        mine = (first.seconds + second) / (2 * block)
        bases = (before.seconds + after.seconds) / (2 * of_base)
        if mine > 0 and bases > 0:  # not where one of its steps raised
            entrant.log_ratios.append(math.log(bases / mine if self._lack_patches else mine / bases))
            entrant.seconds.append(mine)
        return after

    def _timed(self, key: str, steps: int) -> Generator[Turn, float, _Timed]:
        """A timed block, behind the steps that do not count after a switch; no time where one of those failed."""
        if skipped := self._pace(key).skipped:
            yield Turn(key, skipped, False)
            if key != self.base and not self.entrants[key].is_open:
                return _Timed(steps, 0.0)
        seconds = yield Turn(key, steps, True)
        return _Timed(steps, seconds)

    def _judge(self, ended: float = 0.0) -> None:
        """Take a look at those that have reached one; at all of them where the race has ended."""
        for entrant in self.entrants.values():
            if not entrant.is_open or not (ended or self._is_look(len(entrant.log_ratios))):
                continue
            self._look_at(entrant, ended)
            if entrant.key == self.control or entrant.interval is None:
                continue
            if self._is_decided(entrant, entrant.interval) and not (self.rivals and self._may_win(entrant)):
                entrant.left = DECIDED
            elif is_last_look(len(entrant.log_ratios)) and self.least is not None:
                entrant.left = UNDECIDED
        for entrant in self.entrants.values():
            if entrant.is_open and entrant.key != self.control and self._is_futile(entrant):
                entrant.left = FUTILE
        if self.rivals:
            self._leave_beaten()

    def _look_at(self, entrant: Entrant, ended: float = 0.0) -> None:
        """Work out its interval from its quads, and from how much the others beside it scatter."""
        entrant.interval = interval_of_quads(
            entrant.log_ratios, ended, of_control=entrant.key == self.control, others=self._others(entrant)
        )

    def _others(self, entrant: Entrant) -> list[list[float]]:
        """Log ratios of those whose scatter tells that of this one: raced at its pace, and no settings of one thing.

        Rivals are loaders, say, of which one that waits for its data scatters many times as much as one that does not.
        """
        if self.rivals:
            return []
        return [
            other.log_ratios
            for other in self.entrants.values()
            if other is not entrant and self._pace(other.key) == self._pace(entrant.key)
        ]

    def _is_look(self, quads: int) -> bool:
        """Whether the data are judged after so many quads. Rivals that cannot win leave before the first of these looks."""
        return is_look(quads) and not (self.rivals and quads < USUAL_LOOK)

    def _may_win(self, entrant: Entrant) -> bool:
        """Whether a rival gains what it must, and more quads would tell whether it is the fastest."""
        found = entrant.interval
        least = self._least(entrant)
        if found is None or least is None or 1 - found.high < least or found.high <= NEAR * found.low:
            return False
        others = [self.entrants[key] for key in self.candidates if key != entrant.key]
        return any(
            other.is_open or (other.interval and other.interval.low < found.high and other.left == DECIDED)
            for other in others
        )

    def _leave_beaten(self) -> None:
        """Take out rivals that are slower than another by their intervals or, in their first quads, look so."""
        raced = [
            entrant for key in self.candidates if len((entrant := self.entrants[key]).log_ratios) >= FUTILE_QUADS[0]
        ]
        for entrant in raced:
            if entrant.is_open and any(_is_beaten(entrant, other) for other in raced if other is not entrant):
                entrant.left = BEATEN
        for entrant in raced:
            found = entrant.interval if self._is_look(len(entrant.log_ratios)) else None
            if (
                entrant.is_open
                and found is not None
                and self._is_decided(entrant, found)
                and not self._may_win(entrant)
            ):
                entrant.left = DECIDED

    def _is_futile(self, entrant: Entrant) -> bool:
        """Whether a gain of `least` is more than a standard error away from the middle of the first quads.

        One that must gain more, and looks as if it gained less, stays until that is shown: it is faster all the same.
        """
        n = len(entrant.log_ratios)
        if self._lack_patches or self.least is None or n not in (FAR_FROM_IT_QUADS, *FUTILE_QUADS):
            return False
        middle, error = statistics.median(entrant.log_ratios), error_of(entrant.log_ratios, self._others(entrant))
        if n == FAR_FROM_IT_QUADS:
            return middle - FAR_ERRORS * error > math.log(1 + FAR_FROM_IT)
        return middle - error > math.log(1 - self.least)

    def _is_decided(self, entrant: Entrant, found: Interval) -> bool:
        least = self._least(entrant)
        return least is not None and (1 - found.high >= least or 1 - found.low < least)

    def _least(self, entrant: Entrant) -> float | None:
        """The share of the step that a candidate must gain; None where whoever asks decides."""
        return self.leasts.get(entrant.key, self.least) if self.least is not None else None


def quads_in_round(steps: int, longest: int) -> int:
    """How many quads of so many steps fit into the longest one of another, at most MOST_QUADS: a power of 2 divides all looks."""
    return 1 << (min(longest // steps, MOST_QUADS).bit_length() - 1)


def _is_beaten(entrant: Entrant, other: Entrant) -> bool:
    """Whether a candidate is slower than another one: at a look by their intervals, before it by their first quads."""
    if entrant.interval is not None and other.interval is not None:
        return entrant.interval.low > other.interval.high
    if len(entrant.log_ratios) not in FUTILE_QUADS:
        return False
    low, high = (
        statistics.median(logs) + sign * LOOKS_BEATEN * statistics.stdev(logs) / math.sqrt(len(logs))
        for logs, sign in ((entrant.log_ratios, -1), (other.log_ratios, 1))
    )
    return low > high
