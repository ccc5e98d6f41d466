"""A training of this process that is watched while its trainer runs: figures for the logger, and what to warn of."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

from perfaudit.callbacks.slow_phases import Limits, PerfauditWarning, exceeds, slow_phases
from perfaudit.callbacks.trainer_watch import TrainerWatch, is_something_compiled
from perfaudit.script.steps_so_far import StepsSoFar
from perfaudit.script.summary import rate_of, shares_of
from perfaudit.script.tally import MOST_UPDATES, Kind, Tally
from perfaudit.script.waiting import Waiting
from perfaudit.script.watched_steps import WatchedSteps

Json = dict[str, Any]  # Any: nested JSON
PREFIX = "perfaudit/"
ADD_SECONDS = 0.25  # between two times that what was noted is added up
MOST_COST = 0.002  # of the time, for timing phases: a training has many more steps than `perfaudit run` looks at
ROW = 4  # updates that are watched in a row: to put functions in place costs as much as a watched update
LONG_REST = 8  # updates that are not watched, for which functions are taken away
LOOK_SECONDS = 2.0  # between two looks at whether the device is behind, each at two updates


class WatchedTraining:
    """Steps from `begin` to `end`.

    workers: tells of how many workers the loader is, None where that is not known.
    """

    def __init__(
        self,
        limits: Limits,
        workers: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._limits, self._workers, self._clock = limits, workers, clock
        self._watch = TrainerWatch(self._count, clock)
        self._recent = Tally()  # steps since figures were taken
        self._rest: list[Json] = []  # updates that are not in it
        self._whole = Kind()  # the usual steps of all figures: how many were watched, and their phases
        self._so_far = StepsSoFar()
        self._chosen = WatchedSteps(MOST_COST, ROW)
        self._change_at = math.inf  # with this update begin others that are watched, or that are not
        self._began = self._added_at = self._looked_at = clock()
        self._waiting = Waiting()
        self._looked = 0  # after which update
        self._is_looking = False  # again at the next one
        self._warned: set[str] = set()
        self._rests = False

    def begin(self, forward: tuple[Any, str] | None = None) -> None:
        """Watch from now on. forward: see `TrainerWatch.begin`."""
        self._watch.begin(forward)
        self._began = self._added_at = self._clock()

    def end(self) -> None:
        """Watch no more."""
        self.take_figures()
        self._watch.end()

    def take_figures(self) -> dict[str, float]:
        """Of the steps since the last call: seconds, samples a second, and of each phase its share; {} without a step."""
        self._add()
        self._recent.fold(self._rest, is_last=True)
        usual = self._recent.usual
        self._recent, self._rest = Tally(steps=1), []  # of all steps, only the first ones do not count
        self._whole = add_watched(self._whole, usual)
        if not usual.times:
            return {}
        figures = {"seconds_per_step": statistics.median(usual.times), "samples_per_second": rate_of(usual)}
        figures |= {phase: share for phase, share in shares_of(usual).items() if share or phase in self._phases_timed()}
        return {PREFIX + name: value for name, value in figures.items() if value is not None}

    def warn(self) -> None:
        """Warn of each phase that takes too long in all steps of which figures were taken, once each."""
        shares = shares_of(self._whole)
        if not exceeds(shares, self._limits):
            return  # which costs less at each log
        behind = self._waiting.facts().get("behind", 0.0)
        for rule, words in slow_phases(shares, self._whole.watched, self._limits, self._workers(), behind):
            if rule not in self._warned:
                self._warned.add(rule)
                warnings.warn(words, PerfauditWarning, stacklevel=2)

    def _phases_timed(self) -> tuple[str, ...]:
        always = ("data_wait", "forward", "backward", "optimizer", "other")
        return (*always, "host_reads", "host_to_device") if self._watch.times_reads else always

    def _count(self, optimizer: int) -> None:
        """An update of an optimizer has ended. The time that this takes is nobody's."""
        now, updates = self._clock(), self._watch.counts.updates
        self._so_far.add(optimizer)
        if now - self._looked_at > LOOK_SECONDS or self._is_looking:
            self._waiting.end_update(is_next=updates - self._looked == 1)
            self._looked, self._looked_at, self._is_looking = updates, now, not self._is_looking
        if now - self._added_at > ADD_SECONDS:
            self._add()
            self._weigh(updates)
        if updates >= self._change_at:
            is_watched, number = self._chosen.next_row()
            self._watch.watch_next(is_watched)
            self._change_at = updates + number
            if is_watched and self._rests:
                self._watch.go_on()
            elif not is_watched and number >= LONG_REST:
                self._watch.rest()
            self._rests = not is_watched

    def _weigh(self, updates: int) -> None:
        """See how many of the next updates are watched, so that watching costs little."""
        if not self._rests and self._watch.times_reads and is_something_compiled():
            self._watch.leave_tensors()
        seconds = self._clock() - self._began
        self._chosen.weigh(updates, seconds, self._watch.events_per_update, self._so_far.updates_per_step)
        if self._chosen.share < 1.0 and math.isinf(self._change_at):
            self._change_at = updates

    def _add(self) -> None:
        """Add up what was noted; a training of weeks takes no more memory than one of minutes."""
        self._added_at = self._clock()
        self._rest += self._watch.take_records()
        if len(self._rest) > MOST_UPDATES:
            self._rest = self._recent.fold(self._rest)


def add_watched(first: Kind, second: Kind) -> Kind:
    """What the phases of two kinds of steps took together; other figures are left out."""
    return Kind(
        watched=first.watched + second.watched,
        watched_seconds=first.watched_seconds + second.watched_seconds,
        phases=[one + other for one, other in zip(first.phases, second.phases, strict=True)],
    )
