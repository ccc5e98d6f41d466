"""Which variant runs in which step of one training: quads of base and candidate, interleaved, until each is decided.

Knows no torch, no process and no clock: whoever drives the steps asks what is to run next, and says afterwards how long it
took. So the loop may be ours or the user's.

A quad is four blocks in the order base, candidate, candidate, base: a drift of the machine that is steady within a quad
cancels. The last block of a quad is the first of the next. Candidates take turns in random order, so that all of them see the
same moods of the machine: a quad each in a round, and several of those whose quads are short beside one whose quads are long.
One that is decided leaves, and its time goes to the others. Those that can be in place at the same time have no quads: they are
in pairs of blocks, half of them in each, see `halves`. Beside them runs a control, which is the base's own code swapped in, or a
twin of it: what it differs from the base by is the error of this race, as far as candidates are put in place in that way.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from perfaudit.measure.halves import Half, Halves, Pair
from perfaudit.measure.pace import PLAIN, Pace, steps_of_quad
from perfaudit.measure.quads import (
    LOOKS,
    PAIR_LOOKS,
    USUAL_LOOK,
    Interval,
    error_of,
    interval_of_quads,
    is_hopeful,
    is_last_look,
    is_look,
    quads_to_look,
)
from perfaudit.measure.stats import Look

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
# Pairs of blocks from which on one that is raced in these is left, at a look that has what it must gain so many errors away: it
# takes no time from the others, and is in the way only where it is slow.
FUTILE_PAIRS, ERRORS_FROM_IT = 8, 2.0
FAILED = "with it"  # how the reason begins why a candidate failed, which says nothing of its speed
TOGETHER = " & "  # between the keys of those that are in place at the same time
UNDECIDED = "undecided after the last look"  # a further one would be a further chance to be wrong


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to run next: so many steps of the variant with this key (BASE for the training as it is).

    is_timed: they count. in_pair: next to a block with the other half in place, with nothing between.
    """

    key: str
    steps: int
    is_timed: bool
    in_pair: bool = False


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
    looked_at: int = 0  # values, at the last look

    @property
    def is_open(self) -> bool:
        """Whether more quads are wanted."""
        return not self.left


@dataclass(frozen=True, slots=True)
class Terms:
    """What a race asks. Keys of `leasts` are candidates that must gain another share of the step than `least`.

    least: the share of the step that a candidate must gain, and seed: of the order; see `Race`. base: the key of that which the
    others are compared with. rivals: only the fastest is wanted. former: entrants as another process left them, in which this
    race began: they keep their quads, so that no look is made twice. pairs: that it has made, see `Race.pairs_seen`. is_apart: no
    two are ever in place at the same time. firsts: keys of those whose first quads come before all pairs.
    """

    least: float | None
    seed: int
    base: str = BASE
    rivals: bool = False
    leasts: Mapping[str, float] = field(default_factory=dict)
    former: Sequence[Entrant] = ()
    pairs: Sequence[Pair] = ()
    is_apart: bool = False
    firsts: frozenset[str] = frozenset()


@dataclass(slots=True)
class Race:
    """The quads of several candidates and a control against the base.

    base: the key of the variant that the others are compared with; one that is not the training as it is, is all patches, and the
    others lack some of them: ratios are then of the base over the others, and nobody leaves for looking slow. least: the share of
    the step that a candidate must gain; one that was shown to gain it, or to be unable to, is decided; None where whoever asks
    decides, and nobody leaves but for a failure. pace: of those that have none of their own in `paces`; steps of a block count
    evenly, so the base's may be shorter. rivals: the candidates are settings of one thing, of which the fastest is wanted: one
    that cannot be that leaves, and those that can are raced until they are told apart or known to NEAR. leasts: in the place of
    `least`, by key. former, firsts: see `Terms`. slots: candidates, the control perhaps among them, that are raced together, see
    `halves.Halves`. together: who is in place in a turn, by its key, where several are. Results are in `entrants` at any time, so
    that an interruption keeps them.
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
    pairs: Sequence[Pair] = ()
    slots: Sequence[Sequence[str]] = ()
    firsts: frozenset[str] = frozenset()
    entrants: dict[str, Entrant] = field(init=False)
    together: dict[str, Half] = field(default_factory=dict, init=False)
    _halves: Halves | None = field(default=None, init=False)
    _in_halves: Half = field(default=frozenset(), init=False)  # whose ratios are of pairs

    def __post_init__(self) -> None:
        self.entrants = {key: Entrant(key) for key in (*self.candidates, self.control)}
        for entrant in self.former:
            if entrant.key in self.entrants:
                self.entrants[entrant.key] = entrant
                entrant.looked_at = len(entrant.log_ratios)
        if self.slots:
            self._halves = Halves(self.slots, random.Random(self.seed + 1), [*self.pairs])
            self._in_halves = self._halves.keys
            self._tell_halves()
        for entrant in self.former:
            if entrant.key in self.entrants:
                self._look_at(entrant)

    @property
    def in_halves(self) -> Half:
        """Keys of those whose ratios hold with half of the others in place."""
        return self._in_halves

    @property
    def pairs_seen(self) -> list[Pair]:
        """The pairs of blocks so far, which another process of this race goes on with."""
        return self._halves.pairs if self._halves is not None else []

    def break_up(self) -> None:
        """From now on no two are in place at the same time: something fails with several of them.

        Those that are open begin anew with quads, which tell what each gains alone.
        """
        for key in self._keys_together:
            if (entrant := self.entrants[key]).is_open:
                entrant.log_ratios.clear()
                entrant.seconds.clear()
                entrant.interval, entrant.looked_at = None, 0
                self._in_halves -= {key}
        self._halves = None

    def fail(self, key: str, reason: str) -> None:
        """Take a candidate out: a step with it raised, or it is far slower. Nothing is said of its ratio."""
        self.entrants[key].left, self.entrants[key].interval = reason, None

    def end(self, share: float = 1.0) -> None:
        """Judge all that are open by what there is: the time is over. share: see `quads.interval_of_quads`."""
        self._tell_halves()
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
            waiting: list[Entrant | None] = []
            waiting += [entrant for entrant in racing for _ in range(self._quads_in_round(entrant, racing))]
            if self._wants_pairs and not self._pairs_wait(racing):
                waiting.append(None)
            order.shuffle(waiting)
            for entrant in waiting:
                if entrant is None:
                    last = None  # the base's block before the pairs is not next to what follows
                    yield from self._pairs()
                elif entrant.is_open:
                    last = yield from self._quad(entrant, last)
            self._tell_halves()
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
        """The first steps of an entrant. One that is far slower than the base, of which a step takes so long, leaves.

        Those that are raced together have made one when they were tried.
        """
        if entrant.key not in self._in_halves:
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

    @property
    def _keys_together(self) -> Half:
        """Those that are raced together now: who is open, or was shown to pay, so that the others are measured beside it."""
        return frozenset(key for key in self._in_halves if self._is_placed(self.entrants[key]))

    def _is_placed(self, entrant: Entrant) -> bool:
        was_shown = entrant.left == DECIDED and entrant.interval is not None and entrant.interval.high < 1
        return entrant.is_open or was_shown

    @property
    def _wants_pairs(self) -> bool:
        """Whether a candidate among them is open, so that they have pairs of their own."""
        return self._halves is not None and any(
            key != self.control and self.entrants[key].is_open for key in self._in_halves
        )

    def _pairs_wait(self, racing: Sequence[Entrant]) -> bool:
        """Whether pairs come after the quads of one that looks as if it gained what it must, and is short of its usual look.

        That is a loader or a twin. Their quads are long, so that with pairs between them a minute decided neither (photo_resnet).
        One of `firsts` need not look so before it has a few quads.
        """
        return any(
            len(entrant.log_ratios) < (FUTILE_QUADS[0] if entrant.key in self.firsts else 0)
            or (len(entrant.log_ratios) < USUAL_LOOK and self._is_hopeful(entrant))
            for entrant in racing
        )

    def _tell_halves(self) -> None:
        """Give those that are raced together the values of all pairs so far."""
        if self._halves is None:
            return
        for key, values in self._halves.values().items():
            entrant = self.entrants.get(key)  # None where it was decided in another process
            if entrant is not None and self._is_placed(entrant):
                entrant.log_ratios[:] = values

    def _pairs(self) -> Generator[Turn, float, None]:
        """As many pairs as their design has rows."""
        assert self._halves is not None
        if skipped := self._pace(self.base).skipped:
            yield Turn(self.base, skipped, False)
        for _ in range(self._halves.rows_of_design(self._keys_together)):
            if not self._wants_pairs:
                break
            yield from self._pair()

    def _pair(self) -> Generator[Turn, float, None]:
        """A block with one half of them in place, and one with the other."""
        assert self._halves is not None
        halves, steps = self._halves, self._steps_of_half
        pair = halves.next_pair(self._keys_together)
        seconds = []
        for half in pair:
            seconds.append((yield Turn(self._key_of(half), steps, True, in_pair=True)))
            if self._halves is None or not (half <= self._keys_together):
                return
        if all(each > 0 for each in seconds):  # not where a step raised
            halves.add(*pair, math.log(seconds[0] / seconds[1]))
            for half, took in zip(pair, seconds, strict=True):
                for key in half:
                    self.entrants[key].seconds.append(took / steps)

    @property
    def _steps_of_half(self) -> int:
        return self._pace(next(iter(self._in_halves))).block

    def _key_of(self, half: Half) -> str:
        """The key of a turn in which these are in place."""
        key = TOGETHER.join(sorted(half)) or self.base
        if len(half) > 1:
            self.together[key] = half
        return key

    def _racing(self) -> list[Entrant]:
        """Whose quads are in the next round: all that are open, or those that look as if they gained something, and the control.

        Once the first quads have shown who looks so, the others wait until these are decided, so that a short time decides some
        of them. Who waits keeps its quads. Its looks come after as many quads as they would have.
        """
        in_pairs = self._in_halves if self._halves is not None else Half()
        open_ones = [each for key, each in self.entrants.items() if each.is_open and key not in in_pairs]
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
        if last is None:
            last = yield from self._time_block(self.base, of_base)
        first = yield from self._time_block(entrant.key, block)
        if not entrant.is_open:  # it failed meanwhile
            return None
        second = yield Turn(entrant.key, block, True)
        if not entrant.is_open:
            return None
        after = yield from self._time_block(self.base, of_base)
        mine = (first.seconds + second) / (2 * block)
        bases = (last.seconds + after.seconds) / (2 * of_base)
        if mine > 0 and bases > 0:  # not where one of its steps raised
            entrant.log_ratios.append(math.log(bases / mine if self._lack_patches else mine / bases))
            entrant.seconds.append(mine)
        return after

    def _time_block(self, key: str, steps: int) -> Generator[Turn, float, _Timed]:
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
            goes_on = entrant.key in self._in_halves and self._is_placed(entrant) and not ended
            if not (entrant.is_open or goes_on) or not (ended or self._is_look(entrant)):
                continue
            entrant.looked_at = len(entrant.log_ratios)
            self._look_at(entrant, ended)
            if entrant.key == self.control or entrant.interval is None or not entrant.is_open:
                continue
            if self._is_decided(entrant, entrant.interval) and not (self.rivals and self._may_win(entrant)):
                entrant.left = DECIDED
            elif is_last_look(len(entrant.log_ratios), self._looks(entrant)) and self.least is not None:
                entrant.left = UNDECIDED
        for entrant in self.entrants.values():
            if entrant.is_open and entrant.key != self.control and self._is_futile(entrant):
                entrant.left = FUTILE
        if self.rivals:
            self._leave_beaten()

    def _look_at(self, entrant: Entrant, ended: float = 0.0) -> None:
        """Work out its interval from its quads or pairs, and from how much the others beside it scatter.

        One that was shown to pay keeps that while later looks show it less clearly: all looks together miss as seldom as is told.
        """
        others = self._others(entrant)
        found = interval_of_quads(
            entrant.log_ratios, ended, entrant.key == self.control, others, self._looks(entrant), self._freedom(entrant)
        )
        if entrant.left == DECIDED and (found is None or not self._is_decided(entrant, found) or found.high >= 1):
            return
        entrant.interval = found

    def _freedom(self, entrant: Entrant) -> int | None:
        """Degrees of freedom that the effects of all have left of the pairs; None of quads."""
        if self._halves is None or entrant.key not in self._in_halves:
            return None
        return self._halves.freedom

    def _looks(self, entrant: Entrant) -> Sequence[Look]:
        return PAIR_LOOKS if entrant.key in self._in_halves else LOOKS

    def _others(self, entrant: Entrant) -> list[list[float]]:
        """Log ratios of those whose scatter tells that of this one: raced in quads as well, at its pace, and no settings of one
        thing.

        Rivals are loaders, say, of which one that waits for its data scatters many times as much as one that does not.
        """
        if self.rivals or entrant.key in self._in_halves:  # whose values have all come from the same pairs
            return []
        return [
            other.log_ratios
            for other in self.entrants.values()
            if other is not entrant
            and self._pace(other.key) == self._pace(entrant.key)
            and other.key not in self._in_halves
        ]

    def _is_look(self, entrant: Entrant) -> bool:
        """Whether the data are judged now. Rivals that cannot win leave before the first of these looks.

        Of those that are raced together, several pairs come at once.
        """
        quads = len(entrant.log_ratios)
        if entrant.key in self._in_halves:
            return any(is_look(each, PAIR_LOOKS) for each in range(entrant.looked_at + 1, quads + 1))
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
            found = entrant.interval if self._is_look(entrant) else None
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
        n, is_paired = len(entrant.log_ratios), entrant.key in self._in_halves
        is_time = n >= FUTILE_PAIRS and n == entrant.looked_at if is_paired else n in (FAR_FROM_IT_QUADS, *FUTILE_QUADS)
        if self._lack_patches or self.least is None or not is_time:
            return False
        middle, error = statistics.median(entrant.log_ratios), error_of(entrant.log_ratios, self._others(entrant))
        if is_paired:
            return middle - ERRORS_FROM_IT * error > math.log(1 - self.least)
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
