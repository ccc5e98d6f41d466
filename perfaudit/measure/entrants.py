"""Who is in a race, what each has shown, and who leaves it: who is decided, fails or is not worth the time.

Knows which values have come from which entrant, and nothing of the order in which they run: that is `race`. The intervals and
the looks at which they are told are those of `quads`; what values of those that are in place together are, `halves` says.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from perfaudit.measure.halves import Half, Halves, Pair
from perfaudit.measure.pace import PLAIN, Pace
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
)
from perfaudit.measure.stats import Look

# Keys of the training as it is, and of identical code that is put in place as candidates are. Beside candidates that are raced in
# halves, those that are twins have a control of their own.
BASE, CONTROL, TWIN_CONTROL = "base", "control", "control (second training)"
CONTROLS = (CONTROL, TWIN_CONTROL)
HALVES = "halves"  # the way of a control that is raced in these, see `way_of_control`
DECIDED = "decided"
FAR_SLOWER = 4.0  # times the base's step, in each of two looks at one step: whatever the noise, it is not going to win
FAR_SLOWER_WORDS = "times as slow in its first steps"
# After which one that looks unable to gain what it must is left; that can miss a gain, and invent none.
FUTILE_QUADS = (4, 8)
# Fewer tell it of one that is slower than the base by so much of a step, and that by so many standard errors.
FAR_FROM_IT_QUADS, FAR_FROM_IT, FAR_ERRORS = 2, 0.1, 3.0
FUTILE = "looked no faster"
BEATEN = "another setting looked faster"
LOOKS_BEATEN = 2.0  # standard errors of each of two, by which the middles of their first quads must be apart
# High over low of a rival's ratio, below which it is known well enough: its standard error is then 1 %.
NEAR = 1.10
# Pairs of blocks from which on one that is raced in these is left, at a look that has what it must gain so many errors away: it
# takes no time from the others, and is in the way only where it is slow.
FUTILE_PAIRS, ERRORS_FROM_IT = 8, 2.0
FAILED = "with it"  # how the reason begins why a candidate failed, which says nothing of its speed
UNDECIDED = "undecided after all comparisons"  # a further one would be a further chance to be wrong


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
    """What a race asks.

    least: the share of the step that a candidate must gain; one that was shown to gain it, or to be unable to, is decided; None
    where whoever asks decides, and nobody leaves but for a failure. leasts: in its place, by key. seed: of the order. base: the
    key of the variant that the others are compared with; one that is not the training as it is, is all patches, and the others
    lack some of them: ratios are then of the base over the others, and nobody leaves for looking slow. rivals: the candidates are
    settings of one thing, of which the fastest is wanted: one that cannot be that leaves, and those that can are raced until they
    are told apart or known to NEAR. former: entrants as another process left them, in which this race began: they keep their
    quads, so that no look is made twice. pairs: that it has made, see `race.Race.pairs_seen`. is_apart: no two are ever in place
    at the same time. firsts: keys of those whose first quads come before all pairs. things: by key, what a candidate is a setting
    of, where several may be: of those that are raced in quads, one that is slower than another one leaves. controls: of other
    processes, by `way_of_control`; one goes on where it is put in place in that way again.
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
    things: Mapping[str, str] = field(default_factory=dict)
    controls: Mapping[str, Entrant] = field(default_factory=dict)


@dataclass(slots=True)
class Entrants:
    """The candidates of a race and its controls, by key.

    paces: as `race.Race` has them. halves: the pairs of those that are raced together, None where no two are.
    """

    by_key: dict[str, Entrant]
    terms: Terms
    paces: Mapping[str, Pace] = field(default_factory=dict)
    halves: Halves | None = None
    in_halves: Half = field(default=frozenset(), init=False)  # whose values are of pairs
    _middles: dict[str, float] = field(default_factory=dict, init=False)  # of their values, by key

    def __post_init__(self) -> None:
        for entrant in self.by_key.values():
            entrant.looked_at = len(entrant.log_ratios)
        if self.halves is not None:
            self.in_halves = self.halves.keys
            self.update_from_pairs()

    @property
    def candidates(self) -> list[Entrant]:
        """All but the controls."""
        return [entrant for key, entrant in self.by_key.items() if key not in CONTROLS]

    @property
    def wants_more(self) -> bool:
        """Whether a candidate is open; the control is raced alone only where whoever asks decides."""
        return any(each.is_open for each in self.candidates) or (self.terms.least is None and not self.candidates)

    @property
    def wants_pairs(self) -> bool:
        """Whether a candidate among them is open, so that they have pairs of their own."""
        return self.halves is not None and any(
            key not in CONTROLS and self.by_key[key].is_open for key in self.in_halves
        )

    @property
    def keys_together(self) -> Half:
        """Those that are raced together now: who is open, or was shown to pay, so that the others are measured beside it.

        One that was shown to pay leaves its turns to an open setting of the same thing that looks faster still.
        """
        placed = {key for key in self.in_halves if self._is_placed(self.by_key[key])}
        for slot in self.halves.slots if self.halves is not None else ():
            if len(slot) == 1:
                continue
            seen = [key for key in slot if len(self.by_key[key].log_ratios) >= FUTILE_PAIRS]
            best = min(seen, key=self._middle, default=None)
            if best is not None and self.by_key[best].is_open:
                placed -= {key for key in slot if not self.by_key[key].is_open}
        return frozenset(placed)

    def _middle(self, key: str) -> float:
        """The middle of the values of one that is raced in halves; it is asked for before each block."""
        if key not in self._middles:
            self._middles[key] = statistics.median(self.by_key[key].log_ratios)
        return self._middles[key]

    def _is_placed(self, entrant: Entrant) -> bool:
        was_shown = entrant.left == DECIDED and entrant.interval is not None and entrant.interval.high < 1
        return entrant.is_open or was_shown

    @property
    def lack_patches(self) -> bool:
        """Whether the base is all patches, and the others lack some of them."""
        return self.terms.base != BASE

    def pace_of(self, key: str) -> Pace:
        """How long its blocks are, and what comes before them."""
        return self.paces.get(key, PLAIN)

    def fail(self, key: str, reason: str) -> None:
        """Take a candidate out: a step with it raised, or it is far slower. Nothing is said of its ratio."""
        self.by_key[key].left, self.by_key[key].interval = reason, None

    def break_up(self) -> None:
        """From now on no two are in place at the same time: something fails with several of them.

        Those that are open begin anew with quads, which tell what each gains alone.
        """
        for key in self.keys_together:
            if (entrant := self.by_key[key]).is_open:
                entrant.log_ratios.clear()
                entrant.seconds.clear()
                entrant.interval, entrant.looked_at = None, 0
                self.in_halves -= {key}
        self.halves = None

    def update_from_pairs(self, to_the_last: bool = False) -> None:
        """Give those that are raced together the values of all pairs so far, `to_the_last` where the race has ended."""
        if self.halves is None:
            return
        if to_the_last:
            self.halves.fit_to_all()
        self._middles.clear()
        for key, values in self.halves.values().items():
            entrant = self.by_key.get(key)  # None where it was decided in another process
            if entrant is not None and self._is_placed(entrant):
                entrant.log_ratios[:] = values

    def looks_hopeful(self, entrant: Entrant) -> bool:
        """Whether a candidate gains what it must by the middle of its quads, and that by more than a standard error."""
        is_one = entrant.key not in CONTROLS and not (
            self.lack_patches or self.terms.rivals or self.terms.least is None
        )
        if not is_one or len(entrant.log_ratios) < FUTILE_QUADS[0]:
            return False
        least = self._least(entrant)
        assert least is not None
        return is_hopeful(entrant.log_ratios, self._others(entrant), least)

    def judge(self, ended: float = 0.0) -> None:
        """Take a look at those that have reached one; at all of them where the race has ended."""
        for entrant in self.by_key.values():
            goes_on = entrant.key in self.in_halves and self._is_placed(entrant) and not ended
            if not (entrant.is_open or goes_on) or not (ended or self._is_look(entrant)):
                continue
            entrant.looked_at = len(entrant.log_ratios)
            self.look_at(entrant, ended)
            if entrant.key in CONTROLS or entrant.interval is None or not entrant.is_open:
                continue
            if self._is_decided(entrant, entrant.interval) and not (self.terms.rivals and self._may_win(entrant)):
                entrant.left = DECIDED
            elif is_last_look(len(entrant.log_ratios), self._looks(entrant)) and self.terms.least is not None:
                entrant.left = UNDECIDED
        for entrant in self.by_key.values():
            if entrant.is_open and entrant.key not in CONTROLS and self._is_futile(entrant):
                entrant.left = FUTILE
        if self.terms.rivals:
            self._leave_beaten()
        else:
            self._leave_slower_settings()

    def look_at(self, entrant: Entrant, ended: float = 0.0) -> None:
        """Work out its interval from its quads or pairs, and from how much the others beside it scatter.

        One that was shown to pay is open again where a later look no longer shows it: else the look that shows
        most would be told, which is more than there is.
        """
        others = self._others(entrant)
        found = interval_of_quads(
            entrant.log_ratios, ended, entrant.key in CONTROLS, others, self._looks(entrant), self._freedom(entrant)
        )
        if entrant.left == DECIDED and found is None:
            return
        entrant.interval = found
        if entrant.left == DECIDED and found is not None and not self._is_decided(entrant, found):
            entrant.left = ""

    def _freedom(self, entrant: Entrant) -> int | None:
        """Degrees of freedom that the effects of all have left of the pairs; None of quads."""
        if self.halves is None or entrant.key not in self.in_halves:
            return None
        return self.halves.freedom

    def _looks(self, entrant: Entrant) -> Sequence[Look]:
        return PAIR_LOOKS if entrant.key in self.in_halves else LOOKS

    def _others(self, entrant: Entrant) -> list[list[float]]:
        """Log ratios of those whose scatter tells that of this one: raced in quads as well, at its pace, and no settings of one
        thing.

        Rivals are loaders, say, of which one that waits for its data scatters many times as much as one that does not.
        """
        if self.terms.rivals or entrant.key in self.in_halves:  # whose values have all come from the same pairs
            return []
        return [
            other.log_ratios
            for other in self.by_key.values()
            if other is not entrant
            and self.pace_of(other.key) == self.pace_of(entrant.key)
            and other.key not in self.in_halves
        ]

    def _is_look(self, entrant: Entrant) -> bool:
        """Whether the data are judged now. Rivals that cannot win leave before the first of these looks.

        Of those that are raced together, several pairs come at once.
        """
        quads = len(entrant.log_ratios)
        if entrant.key in self.in_halves:
            return any(is_look(each, PAIR_LOOKS) for each in range(entrant.looked_at + 1, quads + 1))
        return is_look(quads) and not (self.terms.rivals and quads < USUAL_LOOK)

    def _may_win(self, entrant: Entrant) -> bool:
        """Whether a rival gains what it must, and more quads would tell whether it is the fastest."""
        found = entrant.interval
        least = self._least(entrant)
        if found is None or least is None or 1 - found.high < least or found.high <= NEAR * found.low:
            return False
        return any(
            other.is_open or (other.interval and other.interval.low < found.high and other.left == DECIDED)
            for other in self.candidates
            if other is not entrant
        )

    def _leave_beaten(self) -> None:
        """Take out rivals that are slower than another by their intervals or, in their first quads, look so."""
        raced = [entrant for entrant in self.candidates if len(entrant.log_ratios) >= FUTILE_QUADS[0]]
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

    def _leave_slower_settings(self) -> None:
        """Take out what looks slower than another setting of the same thing: its quads take time, and it would not be taken.

        Asked after each round: where the two are alike, it does not matter which of them leaves.
        """
        raced = [each for each in self.candidates if each.key not in self.in_halves and each.key in self.terms.things]
        enough = [each for each in raced if len(each.log_ratios) >= FUTILE_QUADS[0]]
        for entrant in enough:
            thing = self.terms.things[entrant.key]
            others = [
                other
                for other in enough
                if other is not entrant
                and self.terms.things[other.key] == thing
                and (other.is_open or other.left == DECIDED)
            ]
            if entrant.is_open and any(_looks_slower(entrant, other) for other in others):
                entrant.left = BEATEN

    def _is_futile(self, entrant: Entrant) -> bool:
        """Whether a gain of `least` is more than a standard error away from the middle of the first quads.

        One that must gain more, and looks as if it gained less, stays until that is shown: it is faster all the same.
        """
        n, is_paired = len(entrant.log_ratios), entrant.key in self.in_halves
        is_time = n >= FUTILE_PAIRS and n == entrant.looked_at if is_paired else n in (FAR_FROM_IT_QUADS, *FUTILE_QUADS)
        if self.lack_patches or self.terms.least is None or not is_time:
            return False
        middle, error = statistics.median(entrant.log_ratios), error_of(entrant.log_ratios, self._others(entrant))
        if is_paired:
            return middle - ERRORS_FROM_IT * error > math.log(1 - self.terms.least)
        if n == FAR_FROM_IT_QUADS:
            return middle - FAR_ERRORS * error > math.log(1 + FAR_FROM_IT)
        return middle - error > math.log(1 - self.terms.least)

    def _is_decided(self, entrant: Entrant, found: Interval) -> bool:
        least = self._least(entrant)
        return least is not None and (1 - found.high >= least or 1 - found.low < least)

    def _least(self, entrant: Entrant) -> float | None:
        """The share of the step that a candidate must gain; None where whoever asks decides."""
        return self.terms.leasts.get(entrant.key, self.terms.least) if self.terms.least is not None else None


def way_of_control(key: str, ways: Mapping[str, str], in_halves: Container[str]) -> str:
    """How a control is put in place: with half of the others, or as a twin, say. Values of one way say nothing of another.

    ways: of all, by key. in_halves: keys of those that are raced so.
    """
    return HALVES if key in in_halves else ways.get(key, "")


def _is_beaten(entrant: Entrant, other: Entrant) -> bool:
    """Whether a candidate is slower than another one: by their intervals, where both have one, else by their first quads."""
    if entrant.interval is not None and other.interval is not None:
        return entrant.interval.low > other.interval.high
    return len(entrant.log_ratios) in FUTILE_QUADS and _looks_slower(entrant, other)


def _looks_slower(entrant: Entrant, other: Entrant) -> bool:
    """Whether the middle of a candidate's quads lies above that of another's, by LOOKS_BEATEN standard errors of each of them."""
    low, high = (
        statistics.median(logs) + sign * LOOKS_BEATEN * statistics.stdev(logs) / math.sqrt(len(logs))
        for logs, sign in ((entrant.log_ratios, -1), (other.log_ratios, 1))
    )
    return low > high
