"""Candidates screened in one running training: each in place for a few steps at a time, in turn with the code as it is.

Child only. What comes of it is not `measured`: it is the training in one process, not the patched program, and nobody has
compared losses. It says which are worth that.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from perfaudit.errors import NoBatches, TargetError
from perfaudit.measure.agreement import Alone
from perfaudit.measure.base_steps import BaseSteps
from perfaudit.measure.entrants import BASE, CONTROL
from perfaudit.measure.faults import Faults, updates_of
from perfaudit.measure.own_time import Stopwatch, cores_of_process
from perfaudit.measure.preparation import (
    LeavesSomething,
    Preparation,
    ends_in_words,
    error_words,
    take_back,
    words_of_a_step,
)
from perfaudit.measure.race import Race, Turn
from perfaudit.training import Training, Variant
from perfaudit.training.together import Together

Json = dict[str, Any]  # Any: nested JSON

BLOCKS_OF_QUAD = 3  # which shares one with the next
# Of a race's seconds, those in steps that only shift what comes at even distances: beside loaders that no longer wait, in a few
# quads of which the base's steps take half the time, they would take a quarter of it.
MOST_LOST = 0.15


@dataclass(slots=True)
class Screening:
    """A race in this process, of candidates that are prepared for it.

    mark: called with the key of what is put in place. counts_own: waiting for cores that others hold is left out, see `own_time`;
    never where loaders are raced. period: steps of a round, 1 where none of different length take turns, see `step_kinds`.

    Each of several ranks has a screening of the same; times are those of the slowest.
    """

    prepared: Preparation
    race: Race
    mark: Callable[[str], None] = lambda key: None
    counts_own: bool = False
    period: int = 1
    base_steps: BaseSteps = field(default_factory=BaseSteps)
    faults: Faults = field(init=False)
    training: Training = field(init=False)
    agreement: Alone = field(init=False)
    _turns: Generator[Turn, float, None] = field(init=False)
    _turn: Turn | None = field(init=False)
    _own_loader: Any = field(init=False)
    _chance: random.Random = field(init=False)
    _inside: str = BASE  # what was entered
    _has_turn: str = BASE  # whose loader workers go on
    _trouble: str = ""
    _is_over: bool = False  # the trouble is that the training has come to its end
    _seconds: float = 0.0  # of all turns so far, with those that
    _lost: float = 0.0  # only shift what comes at even distances
    _longest: float = 0.0  # seconds of a block, on the wall: an evaluation may be in it
    _together: dict[str, Variant] = field(default_factory=dict)  # by the key of a turn in which several are in place

    def __post_init__(self) -> None:
        self.training, self.agreement = self.prepared.training, self.prepared.agreement
        self._own_loader = self.training.loader  # others may be in its place later
        self.faults = Faults(self.prepared, self.race, self._put)
        self._chance = random.Random(self.race.terms.seed)
        self._turns = self.race.turns()
        self._turn = next(self._turns, None)

    def run(self, seconds: float, last: float = 0.0) -> Json:
        """Race for about so long, to the end of a quad's block, and say how it stands, see `state`.

        last: the time is over, and so much of the unspent error goes to this look, see `quads.interval_of_quads`.

        Where the training itself cannot go on, "trouble" says why, and "over" whether it has come to its end. Raises what it
        raised where there is nothing yet.
        """
        ends = time.perf_counter() + seconds
        self._trouble, self._is_over = "", False
        try:
            while self._turn is not None and self.agreement.goes_on(repr(self._turn), time.perf_counter() < ends):
                self._lose_step()
                self._turn = _next_turn(self._turns, self._seconds_in(self._turn))
        except LeavesSomething:
            raise
        except Exception as error:
            entrants, has_ended = self.race.entrants.values(), self.training.has_ended
            is_told = any(entrant.log_ratios or (has_ended and entrant.left) for entrant in entrants)
            if not (is_told or self.faults.why_apart or self.race.pairs_seen):
                with ends_in_words(self.training):
                    raise
            self._trouble = str(error) if isinstance(error, TargetError) else f"a step raises {error_words(error)}"
            self._is_over = isinstance(error, NoBatches)
        finally:
            self._put(BASE)
        if last:
            self.race.end(last)
        return self.state()

    def _lose_step(self) -> None:
        """Now and then, before a block of the base, make a few of its steps that do not count: in quads about once a round.

        A quad takes three blocks. What a training does every sixth step, say (an evaluation, a checkpoint, the short batch that
        ends an epoch), would otherwise fall on the same side of every quad, and identical code would be told apart. Halves change
        sides by chance.
        """
        turn, pace, terms = self._turn, self.race.paces[self.race.base], self.race.terms
        if turn is None or turn.key != self.race.base or not turn.is_timed or turn.in_pair or pace.skipped:
            return
        if terms.rivals:  # the fastest of them is measured afterwards, in blocks that lie otherwise
            return
        if self._lost > MOST_LOST * self._seconds:
            return
        if self._chance.random() * sum(entrant.is_open for entrant in self.race.entrants.values()) < 1:
            steps = self._chance.randrange(BLOCKS_OF_QUAD * pace.block)
            before = self._seconds
            self._seconds_in(Turn(turn.key, steps, False))
            self._lost += self._seconds - before

    def _seconds_in(self, turn: Turn) -> float:
        """The same as `_seconds_of`; it is added to the seconds of the race."""
        seconds = self._seconds_of(turn)
        self._seconds += seconds if math.isfinite(seconds) else 0.0
        return seconds

    def state(self) -> Json:
        """What is known: for each entrant its log ratios, its interval and why it left; refused; whether all is decided; how long
        the longest block took.

        Under "end", where the script has raised: what ("words"), with what in place ("with"), after how many updates. "updates":
        so many a script has made so far.
        """
        entrants = {
            key: {
                "log_ratios": list(entrant.log_ratios),
                "seconds": list(entrant.seconds),
                "left": entrant.left,
                "interval": [
                    entrant.interval.ratio,
                    entrant.interval.low,
                    entrant.interval.high,
                    entrant.interval.quads,
                ]
                if entrant.interval
                else None,
            }
            for key, entrant in self.race.entrants.items()
        }
        return {
            "entrants": entrants,
            "refused": dict(self.prepared.refused),
            "ways": dict(self.prepared.ways),
            "ended": self._turn is None,
            "trouble": self._trouble,
            "over": self._is_over,
            "learns": self.faults.learns,
            "raised": list(self.faults.raised),
            "block": self.race.paces[self.race.base].block,
            "base": self.base_steps.summary(),
            "counts_own": self.counts_own,
            "period": self.period,
            "longest": self._longest,
            "in_halves": sorted(self.race.in_halves),
            "pairs": self.race.pairs_seen,
            "pairs_left_out": self.race.pairs_left_out,
            "apart": self.faults.why_apart,
            "end": self.faults.end,
            "updates": updates_of(self.training),
        }

    def _take_back(self, but: str) -> None:
        """Take back what is in place, if it is not this. Raises LeavesSomething, and leaves its mark: it is to blame."""
        if self._inside in (BASE, but):
            return
        inside, self._inside = self._inside, BASE
        turn, self._has_turn = self._has_turn, BASE
        take_back(self._variant(inside))
        self._has_turn = turn

    def _variant(self, key: str) -> Variant:
        """What is put in place in a turn with this key, which is not the base's."""
        if key in self.prepared.variants:
            return self.prepared.variants[key]
        if key not in self._together:
            # The control first: what is left of its copies is where no candidate is in place.
            keys = sorted(self.race.together[key], key=lambda each: each != CONTROL)
            self._together[key] = Together([self.prepared.variants[each] for each in keys])
        return self._together[key]

    def _put(self, key: str) -> None:
        self._take_back(but=key)
        if key == self._has_turn:
            return
        self._has_turn = key
        self.mark("" if key == BASE else key)
        self.prepared.twins.give_turn_to(self.prepared.variants.get(key), self.prepared.loaders.get(key))
        if key != BASE:
            self._inside = key
            self._variant(key).enter()

    def _seconds_of(self, turn: Turn) -> float:
        """Run a turn's steps, and tell their seconds. A variant with which one raises leaves the race with the reason.

        Seconds of a variant with another batch size are those that the base's batch size would take. Raises LeavesSomething where
        the variant before it cannot be taken back.
        """
        training = self.prepared.twins.training_of(self.prepared.variants.get(turn.key)) or self.training
        is_base = turn.key == self.race.base and turn.is_timed
        self._take_back(but=turn.key)  # a fault of what was there before, not of this one
        fault: Exception | None = None
        try:
            self._put(turn.key)
        except Exception as error:
            fault = error
        if why := self.agreement.refusal(f"{words_of_a_step(fault)}{self.agreement.here}" if fault else ""):
            return self.faults.leave(turn.key, why, fault)
        try:
            restarts = len(training.restart_seconds)
            watch = Stopwatch()
            for _ in range(turn.steps):
                training.whole_step()
            training.synchronize()
        except (Exception, SystemExit) as error:
            return self.faults.after_raising(turn.key, training, error)
        spent, restarted = watch.time_spent(), sum(training.restart_seconds[restarts:])
        seconds = self.agreement.slowest((spent.own(cores_of_process()) if self.counts_own else spent.wall) - restarted)
        phases = training.phases.take()
        if (instead := self.faults.after_step(turn.key, training)) is not None:
            return instead
        if is_base:
            wall = self.agreement.slowest(spent.wall - restarted)
            seen = {"steps": turn.steps, "counted": seconds, "wall": wall, "cpu": spent.process, "queued": spent.queued}
            self.base_steps.add(seen, phases)
        if turn.is_timed:
            self._longest = max(self._longest, spent.wall)
            self.base_steps.add_of_kind("" if turn.in_pair else turn.key, turn.steps, seconds, spent.process)
        restart: float = self.agreement.slowest(turn.steps * training.restart_per_step())
        return float(seconds + restart) * _of_batch(self._own_loader, training.loader)


def _of_batch(base: Any, own: Any) -> float:
    """The base's samples a step over those of another loader; 1 where either is not told."""
    theirs, mine = (getattr(loader, "batch_size", None) for loader in (base, own))
    return float(theirs / mine) if theirs and mine else 1.0


def _next_turn(turns: Generator[Turn, float, None], seconds: float) -> Turn | None:
    with contextlib.suppress(StopIteration):
        return turns.send(seconds)
    return None
