"""Which variant runs in which step of one training: quads of base and candidate, interleaved, until each is decided.

Knows no torch, no process and no clock: whoever drives the steps asks what is to run next, and says afterwards how long it
took. So the loop may be ours or the user's.

A quad is four blocks in the order base, candidate, candidate, base: a drift of the machine that is steady within a quad
cancels. The last block of a quad is the first of the next. Candidates take turns in random order, so that all of them see the
same moods of the machine: a quad each in a round, and several of those whose quads are short beside one whose quads are long.
One that is decided leaves, and its time goes to the others, see `entrants`. Those that can be in place at the same time have no
quads: they are in pairs of blocks, half of them in each, see `halves`. Beside them runs a control, which is the base's own code
swapped in, or a twin of it: what it differs from the base by is the error of this race, as far as candidates are put in place in
that way.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from perfaudit.measure.entrants import (
    CONTROL,
    CONTROLS,
    FAR_SLOWER,
    FAR_SLOWER_WORDS,
    FUTILE_QUADS,
    Entrant,
    Entrants,
    Terms,
)
from perfaudit.measure.halves import Half, Halves, Pair
from perfaudit.measure.pace import PLAIN, Pace, steps_of_base, steps_of_turns
from perfaudit.measure.quads import USUAL_LOOK, quads_to_look

# Quads in a round of one whose quads are short, beside loaders whose turns are long: otherwise those take most of the time, and a
# patch that three steps would tell of waits for twenty. With four, loaders came to no look in a minute (photo_resnet, 2 cores).
MOST_QUADS = 2
TOGETHER = " & "  # between the keys of those that are in place at the same time


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
class Race:
    """The quads of several candidates and a control against the base.

    paces: by key, PLAIN for none; steps of a block count evenly, so the base's may be shorter. slots: candidates, and a control,
    that are raced together, see `halves.Halves`. period: steps of a round, where such of different length take turns, see
    `step_kinds`. together: who is in place in a turn, by its key, where several are. Results are in `entrants` at any time, so
    that an interruption keeps them.
    """

    candidates: Sequence[str]
    terms: Terms
    paces: Mapping[str, Pace] = field(default_factory=dict)
    slots: Sequence[Sequence[str]] = ()
    controls: Sequence[str] = (CONTROL,)
    period: int = 1
    together: dict[str, Half] = field(default_factory=dict, init=False)
    _field: Entrants = field(init=False)
    _base_step: float | None = field(
        default=None, init=False
    )  # seconds, as its last blocks took; None before the first quad

    def __post_init__(self) -> None:
        keys = (*self.candidates, *self.controls)
        former = {entrant.key: entrant for entrant in self.terms.former if entrant.key in keys}
        self._field = Entrants(
            {key: former.get(key) or Entrant(key) for key in keys},
            self.terms,
            self.paces,
            Halves(self.slots, random.Random(self.terms.seed + 1), [*self.terms.pairs]) if self.slots else None,
        )
        for entrant in former.values():
            self._field.look_at(entrant)

    @property
    def base(self) -> str:
        """The key of that which the others are compared with."""
        return self.terms.base

    @property
    def entrants(self) -> dict[str, Entrant]:
        """The candidates and the controls, by key."""
        return self._field.by_key

    @property
    def in_halves(self) -> Half:
        """Keys of those whose ratios hold with half of the others in place."""
        return self._field.in_halves

    @property
    def pairs_seen(self) -> list[Pair]:
        """The pairs of blocks so far, which another process of this race goes on with."""
        return self._field.halves.pairs if self._field.halves is not None else []

    @property
    def pairs_left_out(self) -> int:
        """Of these the last ones, of which too many are disturbed, see `halves.Halves`."""
        return self._field.halves.pairs_left_out if self._field.halves is not None else 0

    def break_up(self) -> None:
        """From now on no two are in place at the same time, see `Entrants.break_up`."""
        self._field.break_up()

    def fail(self, key: str, reason: str) -> None:
        """Take a candidate out: a step with it raised, or it is far slower. Nothing is said of its ratio."""
        self._field.fail(key, reason)

    def end(self, share: float = 1.0) -> None:
        """Judge all that are open by what there is: the time is over. share: see `quads.interval_of_quads`."""
        self._field.update_from_pairs(to_the_last=True)
        self._field.judge(ended=share)

    def turns(self) -> Generator[Turn, float, None]:
        """What runs in turn. Send the seconds of each turn, all its steps together, when it has ended.

        NaN for a turn of which a step raised now and then, as it does without the variant too: its quad does not count.
        """
        order = random.Random(self.terms.seed)
        yield from self._warm_all()
        last: _Timed | None = None
        while self._field.wants_more:
            racing = self._racing()
            waiting: list[Entrant | None] = []
            waiting += [entrant for entrant in racing for _ in range(self._quads_in_round(entrant, racing))]
            if self._field.wants_pairs and not self._pairs_wait(racing):
                waiting.append(None)
            order.shuffle(waiting)
            for entrant in waiting:
                if entrant is None:
                    last = None  # the base's block before the pairs is not next to what follows
                    yield from self._pairs()
                elif entrant.is_open:
                    last = yield from self._quad(entrant, last)
            self._field.update_from_pairs()
            self._field.judge()

    def _warm_all(self) -> Generator[Turn, float, None]:
        """The first steps of all. What lacks patches ran in a race before, so that only its loader's queues are filled again."""
        warm_up = self._field.pace_of(self.base).warm_up
        if not warm_up:
            return
        if self._field.lack_patches:
            for key in (self.base, *self.entrants):
                if self._field.pace_of(key).warm_up > PLAIN.warm_up:
                    yield Turn(key, self._field.pace_of(key).warm_up, False)
            return
        yield Turn(self.base, warm_up, False)
        base = yield Turn(self.base, self.period, False)
        for entrant in self.entrants.values():
            if entrant.is_open:
                yield from self._warm(entrant, base)

    def _warm(self, entrant: Entrant, base: float) -> Generator[Turn, float, None]:
        """The first steps of an entrant. One that is far slower than the base, of which a round of steps takes so long, leaves.

        Those that are raced together have made one when they were tried.
        """
        if entrant.key not in self.in_halves:
            yield Turn(entrant.key, self._field.pace_of(entrant.key).warm_up, False)
        looks: list[float] = []
        while entrant.is_open and len(looks) < 2:
            look = yield Turn(entrant.key, self.period, False)
            looks.append(look)
            if not looks[-1] > FAR_SLOWER * base:  # nor where one of the two is not known
                return
        may_leave = entrant.key not in CONTROLS and not self._field.lack_patches and self.terms.least is not None
        if entrant.is_open and may_leave:
            self.fail(entrant.key, f"{min(looks) / base:.0f} {FAR_SLOWER_WORDS}")

    def _pairs_wait(self, racing: Sequence[Entrant]) -> bool:
        """Whether pairs come after the quads of one that looks as if it gained what it must, and is short of its usual look.

        That is a loader or a twin. Their quads are long, so that with pairs between them a minute decided neither (photo_resnet).
        One of `firsts` need not look so before it has a few quads.
        """
        return any(
            len(entrant.log_ratios) < (FUTILE_QUADS[0] if entrant.key in self.terms.firsts else 0)
            or (len(entrant.log_ratios) < USUAL_LOOK and self._field.looks_hopeful(entrant))
            for entrant in racing
        )

    def _pairs(self) -> Generator[Turn, float, None]:
        """As many pairs as their design has rows."""
        assert self._field.halves is not None
        if skipped := self._field.pace_of(self.base).skipped:
            yield Turn(self.base, skipped, False)
        for _ in range(self._field.halves.rows_of_design(self._field.keys_together)):
            if not self._field.wants_pairs:
                break
            yield from self._pair()

    def _pair(self) -> Generator[Turn, float, None]:
        """A block with one half of them in place, and one with the other."""
        assert self._field.halves is not None
        halves, steps = self._field.halves, self._steps_of_half
        pair = halves.next_pair(self._field.keys_together)
        seconds = []
        for half in pair:
            seconds.append((yield Turn(self._key_of(half), steps, True, in_pair=True)))
            if self._field.halves is None or not (half <= self._field.keys_together):
                return
        if all(each > 0 for each in seconds):  # not where a step raised
            halves.add(*pair, math.log(seconds[0] / seconds[1]))
            for half, took in zip(pair, seconds, strict=True):
                for key in half:
                    self.entrants[key].seconds.append(took / steps)

    @property
    def _steps_of_half(self) -> int:
        return self._field.pace_of(next(iter(self.in_halves))).block

    def _key_of(self, half: Half) -> str:
        """The key of a turn in which these are in place."""
        key = TOGETHER.join(sorted(half)) or self.base
        if len(half) > 1:
            self.together[key] = half
        return key

    def _racing(self) -> list[Entrant]:
        """Whose quads are in the next round: all that are open, or those that look as if they gained something, and the control.

        Once the first quads have shown who looks so, the others wait until these are decided, so that a short time decides some
        of them. Who waits keeps its quads. Its looks come after as many quads as they would have. Beside pairs a control has
        quads only as long as a candidate has, and all wait for one of `firsts` as the pairs do.
        """
        in_pairs = self.in_halves if self._field.halves is not None else Half()
        open_ones = [each for key, each in self.entrants.items() if each.is_open and key not in in_pairs]
        if in_pairs and all(each.key in CONTROLS for each in open_ones):
            return []
        firsts = [each for each in open_ones if each.key in self.terms.firsts]
        if in_pairs and self._pairs_wait(firsts):
            return firsts
        hopeful = [entrant for entrant in open_ones if self._field.looks_hopeful(entrant)]
        if not hopeful or any(len(each.log_ratios) < FUTILE_QUADS[0] for each in open_ones):
            return open_ones
        return [entrant for entrant in open_ones if entrant in hopeful or entrant.key in CONTROLS]

    def _quads_in_round(self, entrant: Entrant, racing: Sequence[Entrant]) -> int:
        """How many quads it has in this round: as many as fit into the longest one of another, and none beyond its next look.

        A control has as many as any of them, so that each has one beside it that was timed as often.
        """
        longest = max(self._seconds_of_quad(each) for each in racing)
        counted = racing if entrant.key in CONTROLS else [entrant]
        even = max(quads_in_round(self._seconds_of_quad(each), longest) for each in counted)
        return min(even, quads_to_look(len(entrant.log_ratios)))

    def _seconds_of_quad(self, entrant: Entrant) -> float:
        """With steps of the base where its own are not known. A loader that waits no more makes twelve while the base makes one.

        In steps while the base's is not known, also where another process has told those of the entrant.
        """
        base_step = self._base_step or 1.0
        step = statistics.median(entrant.seconds) if entrant.seconds and self._base_step else base_step
        own, base = steps_of_turns(self._field.pace_of(entrant.key)), steps_of_base(self._field.pace_of(self.base))
        return own * step + base * base_step

    def _quad(self, entrant: Entrant, last: _Timed | None) -> Generator[Turn, float, _Timed | None]:
        """A quad of an entrant; `last` is the base's block before it. Gives the base's block behind it, None for none."""
        block, of_base = self._field.pace_of(entrant.key).block, self._field.pace_of(self.base).block
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
            self._base_step = bases
            entrant.log_ratios.append(math.log(bases / mine if self._field.lack_patches else mine / bases))
            entrant.seconds.append(mine)
        return after

    def _time_block(self, key: str, steps: int) -> Generator[Turn, float, _Timed]:
        """A timed block, behind the steps that do not count after a switch; no time where one of those failed."""
        if skipped := self._field.pace_of(key).skipped:
            yield Turn(key, skipped, False)
            if key != self.base and not self.entrants[key].is_open:
                return _Timed(steps, 0.0)
        seconds = yield Turn(key, steps, True)
        return _Timed(steps, seconds)


def quads_in_round(seconds: float, longest: float) -> int:
    """How many quads that take so long fit into the longest one of another, at most MOST_QUADS: a power of 2 divides all looks.

    Both in seconds, or in steps.
    """
    return 1 << (min(int(longest / seconds), MOST_QUADS).bit_length() - 1)
