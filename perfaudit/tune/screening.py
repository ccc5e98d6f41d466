"""Races of candidates in one training of a child: run slice by slice, told as they go, kept for a run that is resumed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from perfaudit.findings import Saving
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.judge import QUEUED
from perfaudit.measure.watch import Standing
from perfaudit.measurements import Calibration, Interval
from perfaudit.target.phases import PHASES
from perfaudit.tune.tuning import Tuning
from perfaudit.tune.workshop import Engine, Json

LEAST = 0.01  # of the step; what a patch must gain for certain to stay
CONTROL, AS_IT_IS = "control", "base"  # keys of a race, as `measure.race` and `measure.screening` have them
CALIBRATING_QUADS = 16  # of a control that is raced alone: two in each batch of its interval
BUSY = 1.5  # wall over processor seconds of a step that only computes; above, the machine is doing something else
SLICE = 1.0  # seconds between two looks at how a race stands
TOLD = 10.0  # seconds between two words on how a race stands that outlast a killed run
SEED = 7
NOT_LEARNING = "the losses are no numbers any more: times are of a training that does not learn"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a race has shown of one entrant: its ratio to the base, why it left, and seconds per step by quad."""

    quads: int
    left: str
    interval: Interval | None = None
    seconds: tuple[float, ...] = ()


@dataclass(slots=True)
class Raced:
    """How far a race has come: its entrants by key, those that could not take part and why, ways in which they are put in place.

    base: totals of the base's timed steps, see `measure.screening.Screening`. ended: all are decided.
    """

    entrants: dict[str, Seen] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)
    base: Json = field(default_factory=dict)
    log_ratios: dict[str, list[float]] = field(default_factory=dict)
    ended: bool = False

    def interval(self, key: str) -> Interval | None:
        """The ratio of an entrant; None where it was not raced long enough."""
        seen = self.entrants.get(key)
        return seen.interval if seen is not None else None

    def saving(self, key: str) -> Saving | None:
        """What an entrant saves of the base's step; None where it was not raced long enough."""
        seen, step = self.interval(key), self.seconds_per_step
        return Saving("screened", 1 - seen[2], 1 - seen[1], step and step * (1 - seen[0])) if seen is not None else None

    @property
    def seconds_per_step(self) -> float | None:
        """Of the base, in its timed steps; None before there are any."""
        return self.base["wall"] / self.base["steps"] if self.base and self.base["steps"] else None


@dataclass(slots=True)
class Screen:
    """A training in a child, in which one race after the other is run. Use as a context manager.

    tell: called when a candidate was decided, and now and then. Where the child dies with a candidate in place, that one leaves
    with the reason, and the training is built again.
    """

    tuning: Tuning
    tell: Callable[[], None] = lambda: None
    _engine: Engine | None = None

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def race(
        self,
        label: str,
        entrants: Sequence[Json],
        deadline: Deadline,
        names: Mapping[str, str],
        raced: Raced,
        base: str = "",
        most_quads: int | None = None,
        least: float | None = LEAST,
        rivals: bool = False,
    ) -> None:
        """Race them until all are decided or the time is over; `raced` has what is known at any moment.

        entrants: as the child takes them, see `verbs.racing`; without any the control is raced alone. base: the key of that
        which the others are compared with, "" for the training as it is. names: by key, short, for those who watch.
        most_quads: which those that stay undecided have at most, None for as many as there is time for. least: the share of
        the step to be gained, None where `most_quads` and the time alone end the race. rivals: only the fastest is wanted.
        Raises ChildFailed where the base cannot run.
        """
        key = f"race {label} {_digest(entrants)}"
        known = self._decided_before(key, raced)
        if not entrants and raced.interval(CONTROL) is not None:
            return
        while (
            waiting := [item for item in entrants if item["key"] not in known and item["key"] not in raced.refused]
        ) or not entrants:
            if base and [item["key"] for item in waiting] == [base] and AS_IT_IS in known:
                break
            try:
                self._run(waiting, base, deadline, key, known, names, raced, most_quads, least, rivals)
                return
            except ChildFailed as failure:
                guilty = self._engine.in_place() if self._engine is not None else ""
                self._close()
                if guilty in ("", AS_IT_IS, CONTROL, base) or deadline.left() <= 0:
                    raise
                raced.refused[guilty] = f"with it in place, {failure}"
        raced.ended = True

    def _run(
        self,
        entrants: list[Json],
        base: str,
        deadline: Deadline,
        key: str,
        known: dict[str, Json],
        names: Mapping[str, str],
        raced: Raced,
        most_quads: int | None,
        least: float | None,
        rivals: bool,
    ) -> None:
        if self._engine is None:
            self._engine = self.tuning.workshop.engine()
        prepared = self._engine.screen(entrants, least, SEED, base, rivals)
        raced.refused |= prepared["refused"]
        raced.ways |= prepared["ways"]
        decided, is_enough, until_told = set(known), False, self.tuning.deadline(TOLD)
        while True:
            seconds = min(SLICE, deadline.left()) if not is_enough else 0.0
            state = self._engine.race(max(0.0, seconds), last=seconds < SLICE)
            _take(raced, {**state, "entrants": {**state["entrants"], **known}})
            self.tuning.watch.standings(_standings(raced, names))
            now = {name for name, item in state["entrants"].items() if item["left"]}
            # Where the training has to be built again, they are not raced again.
            known |= {name: item for name, item in state["entrants"].items() if item["left"] and name != CONTROL}
            if not state.get("learns", True):
                self.tuning.note_once(NOT_LEARNING)
            if now - decided or not entrants:
                self.tuning.record.note("race", key, state)
            if now - decided or not until_told.left():
                self.tell()
                until_told = self.tuning.deadline(TOLD)
                decided |= now
            if state.get("trouble"):
                raise ChildFailed("step", state["trouble"])
            if raced.ended or seconds < SLICE:
                return
            still = [
                item
                for name, item in state["entrants"].items()
                if not item["left"] and (name != CONTROL or not entrants)
            ]
            is_enough = most_quads is not None and all(len(item["log_ratios"]) >= most_quads for item in still)

    def _decided_before(self, key: str, raced: Raced) -> dict[str, Json]:
        """Entrants that an earlier run has decided, as the child told them."""
        notes = self.tuning.record.notes("race", key)
        if not notes:
            return {}
        _take(raced, notes[-1])
        return {name: item for name, item in notes[-1]["entrants"].items() if item["left"] and name != CONTROL}

    def _close(self) -> None:
        if self._engine is not None:
            with contextlib.suppress(ChildFailed):
                self._engine.close()
        self._engine = None


def calibrate(tuning: Tuning, seconds: float) -> None:
    """Race the user's code against itself, for so long at most: a control for knobs that are raced in fresh processes."""
    tuning.watch.stage("your code against itself: how noisy is this machine")
    raced = Raced()
    try:
        with Screen(tuning) as screen:
            screen.race("control", [], tuning.deadline(seconds), {}, raced, most_quads=CALIBRATING_QUADS, least=None)
    except ChildFailed as failure:
        tuning.notes.append(f"the training in which your code is raced against itself ended early: {failure}")
    finally:
        tuning.calibration = calibration_of(raced, tuning)
    seen = tuning.calibration
    busy = seen is not None and seen.computes_alone and seen.wall_over_cpu > BUSY
    if seen is not None and busy and seen.queued >= QUEUED:  # else it waits for data
        tuning.notes.append(
            f"the machine is busy: a step takes {seen.wall_over_cpu:.1f} times its processor time, "
            "so intervals are wide and verdicts late"
        )


def calibration_of(raced: Raced, tuning: Tuning) -> Calibration | None:
    """What a step consists of, and how far the control, which is identical code, came out from the user's; None before a race."""
    base, control = raced.base, raced.interval(CONTROL)
    if not base or not base["steps"]:
        return None
    steps, logs = base["steps"], raced.log_ratios.get(CONTROL, [])
    ratio, low, high = control or (math.exp(statistics.fmean(logs)) if logs else 1.0, None, None)
    return Calibration(
        seconds_per_step=base["wall"] / steps,
        wall_over_cpu=base["wall"] / base["cpu"] if base["cpu"] else 1.0,
        scatter=statistics.stdev(logs) if len(logs) > 1 else None,
        ratio=ratio,
        rounds=len(logs),
        computes_alone=tuning.computes_alone(),
        phases={name: base["phases"][name] / steps for name in PHASES if name in base["phases"]},
        queued=base["queued"] / base["wall"] if base["wall"] else 0.0,
        low=low,
        high=high,
    )


def doubt_of(*races: Raced) -> str:
    """Why no figure of these races is to be believed: a control was told from the user's code; "" where none was.

    In fresh processes there is no such control, and no such doubt: what is measured there stands.
    """
    for raced in races:
        if (seen := raced.interval(CONTROL)) is not None and not seen[1] <= 1 <= seen[2]:
            ratio, low, high = seen
            return (
                "it was raced in one training only, and there the control, which is identical code, came out at "
                f"{ratio:.3f} [{low:.3f}, {high:.3f}] in place of 1"
            )
    return ""


def _take(raced: Raced, state: Json) -> None:
    """Keep what the child tells of a race."""
    for key, item in state["entrants"].items():
        found = item["interval"]
        interval = (found[0], found[1], found[2]) if found else None
        raced.entrants[key] = Seen(len(item["log_ratios"]), item["left"], interval, tuple(item["seconds"]))
        raced.log_ratios[key] = list(item["log_ratios"])
    raced.ways |= state["ways"]
    raced.base, raced.ended = state["base"], state["ended"]


def _standings(raced: Raced, names: Mapping[str, str]) -> list[Standing]:
    rows = []
    for key, seen in raced.entrants.items():
        logs = raced.log_ratios[key]
        ratio, low, high = seen.interval or (math.exp(statistics.median(logs)) if logs else None, None, None)
        rows.append(Standing(names.get(key, key), seen.quads, ratio, low, high, seen.left, key == CONTROL))
    return rows


def _digest(entrants: Sequence[Json]) -> str:
    return hashlib.sha256(json.dumps(entrants, sort_keys=True).encode()).hexdigest()[:16]
