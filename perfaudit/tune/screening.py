"""Races of candidates in one training of a child: run slice by slice, told as they go, kept for a run that is resumed."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import MOST_KEPT, Deadline
from perfaudit.measure.engine import ChildEngine
from perfaudit.measure.entrants import BASE, CONTROL, CONTROLS, TWIN_CONTROL
from perfaudit.measure.judge import QUEUED
from perfaudit.measure.watch import Standing
from perfaudit.measurements import Calibration, TwinControl
from perfaudit.tune.own_end import error_of
from perfaudit.tune.profile import Profile
from perfaudit.tune.race_results import RAISES, Raced
from perfaudit.tune.race_so_far import Lineup, RaceSoFar
from perfaudit.tune.session import Session

CALIBRATING_QUADS = 16  # of a control that is raced alone: two in each batch of its interval
BUSY = 1.5  # wall over processor seconds of a step that only computes; above, the machine is doing something else
SLICE = 1.0  # seconds between two looks at how a race stands
LATE = 60.0  # seconds behind its end that a race waits for a step: one that hangs must not cost more than the budget
TOLD = 10.0  # seconds between two words on how a race stands that outlast a killed run
SEED = 7
APART = "patches are raced one at a time, since something went wrong with several of them in place"
BUILT_AGAIN = "the training ended while it was raced, and was built again"
TAKE_TURNS = "steps of different length seem to come in rounds of {}: patches are raced in blocks of whole rounds"
BY_ITSELF = ("with it, ", "after a step with it")  # words of a candidate that say what is in place
NOT_LEARNING = "the losses have become NaN or infinite: times are of a training that does not learn"


@dataclass(slots=True)
class Screen:
    """A training in a child, in which one race after the other is run. Use as a context manager.

    tell: called when a candidate was decided, and now and then. Where the child dies with a candidate in place, that one leaves
    with the reason, and the training is built again; so it is where the training itself ends, as long as each process gets
    further than the one before. The first one may have made steps of a script before the race, and has a second chance.
    may_count_own: the training does nothing but compute, see `Profile.only_computes`.
    """

    session: Session
    tell: Callable[[], None] = lambda: None
    may_count_own: bool = False
    _engine: ChildEngine | None = None
    _is_first: bool = True  # of the processes
    _period: int = 1  # steps of a round, where such of different length take turns; one process sees it for all

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def race(
        self,
        label: str,
        lineup: Lineup,
        deadline: Deadline,
        raced: Raced,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Race them until all are decided or the time is over; `raced` has what is known at any moment.

        enough: asked now and then; where it is, the race ends, and those that are open keep what their last look has shown.
        Raises ChildFailed where the base cannot run.
        """
        so_far = RaceSoFar(lineup, raced)
        key = lineup.key(label)
        so_far.recall(self.session.record.notes("race", key))
        if not lineup.entrants and raced.interval(CONTROL) is not None:
            return
        while so_far.waiting() or not lineup.entrants:
            was_apart = so_far.why_apart
            try:
                self._run(so_far, deadline, partial(self._note, key, so_far), enough)
                return
            except ChildFailed as failure:
                self._end_process(so_far, failure, deadline, were_several=so_far.why_apart != was_apart)
        raced.ended = True

    def _end_process(self, so_far: RaceSoFar, error: ChildFailed, deadline: Deadline, were_several: bool) -> None:
        """Say who is to blame for the end of a process, so that another one goes on without them, or with one in place at a time.

        were_several: it ended with several of them in place. Raises ChildFailed where no other one is started: there is no time
        for it, or the base is to blame and this one came no further than the one before.
        """
        failure, base = error, so_far.lineup.base
        guilty = self._engine.in_place() if self._engine is not None else ""
        self._close()
        if own := self._own_end(so_far, str(failure), guilty):
            failure, guilty, were_several = ChildFailed("ended", own), "", False
        elif guilty not in ("", BASE, *so_far.lineup.digests):
            so_far.race_apart(str(failure))
            were_several, guilty = True, ""
        elif were_several:
            so_far.race_apart(so_far.why_apart)
        is_own_fault = guilty in ("", BASE, *CONTROLS, base)
        gets_further = so_far.has_gone_on() or (self._is_first and failure.kind == "ended")
        self._is_first = False
        is_its_end = failure.kind == "ended" and not own  # where it raises by itself, longer training helps nothing
        if is_its_end:
            so_far.raced.own_end = str(failure)
            so_far.raced.own_ends += 1
        if deadline.seconds_left() <= 0 or (is_own_fault and not (gets_further or were_several)):
            so_far.raced.gave_up = is_its_end and deadline.seconds_left() > 0
            raise failure from error
        if were_several:
            so_far.end_process()
        elif is_own_fault:
            so_far.end_process()
            so_far.raced.notes.append(f"{BUILT_AGAIN}: {failure}")
        else:
            words = str(failure)
            so_far.end_process(guilty, words if words.startswith(BY_ITSELF) else f"with it in place, {words}")

    def _own_end(self, so_far: RaceSoFar, failure: str, guilty: str) -> str:
        """That the script has ended by an error of its own, for which nobody is blamed any more; "" where it has not."""
        end = so_far.take_end(failure, guilty)
        if end is None:
            return ""
        if not (end.error in self.session.own_ends or so_far.is_own(end)):
            so_far.blame(end)
            return ""
        self.session.own_ends.add(end.error)
        so_far.acquit(end.error)
        gone = (f"{APART}: ", f"{BUILT_AGAIN}: ")
        notes = [
            note
            for note in so_far.raced.notes
            if not any(error_of(note.removeprefix(each)) == end.error for each in gone)
        ]
        so_far.raced.notes[:] = notes
        return end.words(self.session.target)

    def _note(self, key: str, so_far: RaceSoFar) -> None:
        self.session.record.note("race", key, so_far.note())

    def _run(self, so_far: RaceSoFar, deadline: Deadline, note: Callable[[], None], enough: Callable[[], bool]) -> None:
        """As much of a race as one process makes of it. Raises ChildFailed."""
        raced, lineup = so_far.raced, so_far.lineup
        if self._engine is None:
            self._engine = self.session.workshop.engine()
        self._engine.longest = deadline.seconds_left() + LATE
        waiting = so_far.waiting()
        self.session.watch.opening("the training, with each candidate in place for a step")
        prepared = self._engine.screen(
            waiting, lineup.least, SEED, base=lineup.base, rivals=lineup.rivals, so_far=so_far.quads_of(waiting),
            controls=so_far.controls_beside(waiting), may_count_own=self.may_count_own, is_apart=bool(so_far.why_apart),
            pairs=so_far.pairs, period=self._period,
        )  # fmt: skip
        raced.refused |= prepared["refused"]
        raced.ways |= prepared["ways"]
        is_enough, until_told = False, self.session.deadline(TOLD)
        most_kept = MOST_KEPT * deadline.seconds_left()
        while not enough():
            seconds = 0.0 if is_enough else min(SLICE, deadline.seconds_left())
            is_last = seconds < SLICE
            self._engine.longest = deadline.seconds_left() + deadline.kept + LATE
            state = self._engine.race(seconds, last=deadline.share_of_end() if is_last else 0.0)
            has_left, is_look = so_far.take(state)
            deadline.keep(min(state.get("longest", 0.0), most_kept))
            self.session.watch.standings(_standings(raced, lineup.names))
            if not state.get("learns", True):
                raced.notes.append(NOT_LEARNING)
            self._period = state.get("period", self._period)
            if self._period > 1:
                raced.notes.append(TAKE_TURNS.format(self._period))
            if so_far.why_apart:
                raced.notes.append(f"{APART}: {so_far.why_apart}")
            if state.get("raised", (0,))[0]:
                raced.notes.append(f"{RAISES}: {state['raised'][1]}")
            is_time = not until_told.seconds_left()
            if has_left or is_look or is_time or not lineup.entrants:  # looks lie minutes apart in the end
                note()
            if has_left or is_time:
                self.tell()
                until_told = self.session.deadline(TOLD)
            if state.get("trouble"):
                if not so_far.has_gone_on():  # this is the end: all are judged by what there is
                    so_far.take(self._engine.race(0.0, last=1.0))
                if state.get("over"):
                    raced.updates_to_end = state["updates"]
                raise ChildFailed("ended" if state.get("over") else "step", state["trouble"])
            if raced.ended or (is_last and not deadline.goes_on()):
                return
            is_enough = so_far.is_enough()

    def _close(self) -> None:
        if self._engine is not None:
            with contextlib.suppress(ChildFailed):
                self._engine.close()
        self._engine = None


def calibrate(session: Session, profile: Profile, seconds: float, raced: Raced) -> Calibration | None:
    """Race the user's code against itself, for so long at most: a control for knobs that are raced in fresh processes.

    raced: has what is known at any moment.
    """
    session.watch.stage("your code against itself: how noisy is this machine")
    try:
        with Screen(session, may_count_own=profile.only_computes) as screen:
            lineup = Lineup([], {}, most_quads=CALIBRATING_QUADS, least=None)
            screen.race("control", lineup, session.deadline(seconds), raced)
    except ChildFailed as failure:
        raced.notes.append(f"the training in which your code is raced against itself ended early: {failure}")
    seen = calibration_of(raced, profile)
    busy = seen is not None and seen.computes_alone and seen.wall_over_cpu > BUSY
    if seen is not None and busy and seen.queued >= QUEUED and seen.clock == "wall":  # else it waits for data
        raced.notes.append(
            f"the machine is busy: a step takes {seen.wall_over_cpu:.1f} times its processor time, "
            "so intervals are wide and verdicts late"
        )
    return seen


def calibration_of(raced: Raced, profile: Profile) -> Calibration | None:
    """What a step consists of, and how far the control, which is identical code, came out from the user's; None before a race."""
    base, control = raced.base, raced.interval(CONTROL)
    if not base or not base["steps"]:
        return None
    steps, counted, logs = base["steps"], base.get("counted", base["wall"]), raced.log_ratios.get(CONTROL, [])
    ratio, low, high = control or (math.exp(statistics.fmean(logs)) if logs else 1.0, None, None)
    twins = raced.entrants.get(TWIN_CONTROL)
    return Calibration(
        seconds_per_step=counted / steps,
        wall_over_cpu=base["wall"] / base["cpu"] if base["cpu"] else 1.0,
        scatter=statistics.stdev(logs) if len(logs) > 1 else None,
        ratio=ratio,
        rounds=len(logs),
        computes_alone=profile.computes_alone,
        phases={name: seconds / steps for name, seconds in raced.phases.items()},
        queued=base["queued"] / counted if counted else 0.0,
        clock=raced.clock,
        low=low,
        high=high,
        control_way=raced.ways.get(CONTROL, ""),
        in_halves=CONTROL in raced.in_halves,
        cpu_per_step=base["cpu"] / steps,
        of_twins=TwinControl(twins.quads, *(twins.interval or (None, None, None))) if twins is not None else None,
    )


def _standings(raced: Raced, names: Mapping[str, str]) -> list[Standing]:
    rows = []
    for key, seen in raced.entrants.items():
        logs = raced.log_ratios[key]
        ratio, low, high = seen.interval or (math.exp(statistics.median(logs)) if logs else None, None, None)
        rows.append(Standing(names.get(key, key), seen.quads, ratio, low, high, seen.left, key in CONTROLS))
    return rows
