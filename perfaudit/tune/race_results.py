"""What races in one training have shown of each candidate, and whether it is to be believed. Measures nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from perfaudit.findings import Saving
from perfaudit.measure.entrants import CONTROLS, FAILED, TWIN_CONTROL
from perfaudit.measure.judge import NEXT_TO_NOTHING
from perfaudit.measurements import ClockName, Interval
from perfaudit.target.phases import PHASES
from perfaudit.tune.own_end import error_of
from perfaudit.tune.workshop import Json

WITH = "with it, "  # of a candidate, see `measure.preparation`
RAISES = "a step of the training raises now and then, with patches and without; such steps are not counted"
NOT_KNOWN = "whether without it, too, was not seen"
MOST_LONG = 1 / 3  # of the time, chosen: a screened figure of the other steps is wrong by half then
OWN_TIME = "other programs use the cores: the time that steps wait for a core is left out of all times"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a race has shown of one entrant: its ratio to the base, why it left, and seconds per step by quad.

    way: in which a control was put in place, see `measure.entrants.way_of_control`; "" where that is not told.
    """

    quads: int
    left: str
    interval: Interval | None = None
    seconds: tuple[float, ...] = ()
    way: str = ""


@dataclass(slots=True)
class Raced:
    """How far a race has come: its entrants by key, those that could not take part and why, ways in which they are put in place.

    base: totals of the base's timed steps, see `measure.base_steps`. former_controls: with their keys, of the processes before
    the last one, where it took several. ended: all are decided. notes: what the report is to say of the race itself,
    some of it again and again. in_halves: keys of those whose ratios hold with half of the others in place, see
    `measure.halves`. pairs_left_out: the last of their pairs, which tell nothing. unsure: by key, the updates after which a
    script ended with it in place, where it has not come further without it: the error may be its own. own_end: how the training
    has come to its end while it was raced, "" where it has not, or has raised; own_ends: how often it has; updates_to_end: its
    updates until then, 0 where that was not told. gave_up: no other process would have come further, so that the race ended with
    it before its time. period: steps of a round, where such of different length take turns, see `measure.step_kinds`.
    """

    entrants: dict[str, Seen] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)
    base: Json = field(default_factory=dict)
    log_ratios: dict[str, list[float]] = field(default_factory=dict)
    former_controls: list[tuple[str, Seen]] = field(default_factory=list)
    ended: bool = False
    notes: list[str] = field(default_factory=list)
    in_halves: set[str] = field(default_factory=set)
    pairs_left_out: int = 0
    unsure: dict[str, int] = field(default_factory=dict)
    own_end: str = ""
    own_ends: int = 0
    updates_to_end: int = 0
    gave_up: bool = False
    period: int = 1

    def interval(self, key: str) -> Interval | None:
        """The ratio of an entrant; None where it was not raced long enough."""
        seen = self.entrants.get(key)
        return seen.interval if seen is not None else None

    @property
    def failures(self) -> dict[str, str]:
        """By key, why candidates failed: a step raises with them, say, at the first one or later.

        Of what a step of the user's code has raised as well, the words say so.
        """
        left = {key: seen.left for key, seen in self.entrants.items() if key not in CONTROLS}
        failed = {key: why for key, why in (self.refused | left).items() if why.startswith(FAILED)}
        return {key: self._with_and_without(key, why) for key, why in failed.items()}

    def _with_and_without(self, key: str, why: str) -> str:
        if key in self.unsure:
            return f"{why}; {NOT_KNOWN}"
        error = error_of(why)
        is_own = error and any(note.startswith(RAISES) and error in note for note in self.notes)
        return f"{WITH}and without, {why.removeprefix(WITH)}" if is_own else why

    @property
    def out(self) -> dict[str, str]:
        """By key, why candidates have no ratio and will have none: they could not take part, or failed."""
        return self.refused | self.failures

    def saving(self, key: str) -> Saving | None:
        """What an entrant saves of the base's step; None where it was not raced long enough."""
        seen, step = self.interval(key), self.seconds_per_step
        return (
            Saving("screened", 1 - seen[2], 1 - seen[1], step and step * (1 - seen[0]), clock=self.clock)
            if seen is not None
            else None
        )

    @property
    def seconds_per_step(self) -> float | None:
        """Of the base, in its timed steps, by `clock`; None before there are any."""
        return self._base_seconds / self.base["steps"] if self.base and self.base["steps"] else None

    @property
    def share_of_long_steps(self) -> float:
        """Of the time, what some steps take beyond a usual one: rollouts, an evaluation. 0 where that is not told.

        Of the base's, or of all that were raced, whichever is more: in halves the base has few. Of its processor time as well: a
        step is long, too, while others hold the cores.
        """
        steps, usual, of_all = self.base.get("steps"), self.base.get("usual"), float(self.base.get("long", 0.0))
        if not steps or not usual:
            return of_all
        totals = (self._base_seconds, self.base["cpu"])
        own = min(1 - each * steps / total if total else 0.0 for each, total in zip(usual, totals, strict=True))
        return max(of_all, own)

    @property
    def _base_seconds(self) -> float:
        """Seconds of the base's steps; those on the wall where an earlier version has told them."""
        wall: float = self.base.get("wall", 0.0)
        counted: float = self.base.get("counted", wall)
        return counted

    @property
    def clock(self) -> ClockName:
        """ "own" where waiting for cores that others held is left out, and is more than next to nothing."""
        is_less = self._base_seconds < (1 - NEXT_TO_NOTHING) * self.base.get("wall", 0.0)
        return "own" if is_less else "wall"

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of each part of the base's timed steps, all steps together.

        What is left out of a step is left out of each part alike.
        """
        told, wall = self.base.get("phases", {}), self.base.get("wall", 0.0)
        share = self._base_seconds / wall if wall else 1.0
        return {name: share * told[name] for name in PHASES if name in told}

    @property
    def controls(self) -> list[Seen]:
        """Of all processes that this race has taken."""
        return [seen for _, seen in self._keyed_controls]

    def controls_of(self, key: str) -> list[Seen]:
        """Of these, those that are put in place as an entrant is, where there are such, or all that there are."""
        is_twin = self.ways.get(key) == "twin"
        own = [seen for name, seen in self._keyed_controls if (name == TWIN_CONTROL or seen.way == "twin") == is_twin]
        return own or self.controls

    @property
    def _keyed_controls(self) -> list[tuple[str, Seen]]:
        return [*self.former_controls, *((key, seen) for key, seen in self.entrants.items() if key in CONTROLS)]

    def take(self, state: Json) -> None:
        """Keep what a child tells, see `measure.screening.Screening.state`."""
        for key, item in state["entrants"].items():
            self.entrants[key] = seen_of(item)
            self.log_ratios[key] = list(item["log_ratios"])
        self.ways |= state["ways"]
        self.in_halves = {*state.get("in_halves", ())}
        self.pairs_left_out, self.period = state.get("pairs_left_out", 0), state.get("period", self.period)
        if state["base"]["steps"] or not self.base:  # else a process before this one has told what a step takes
            self.base = state["base"]
        self.ended = state["ended"]


def seen_of(item: Json) -> Seen:
    """An entrant as a child tells it."""
    found = item["interval"]
    interval = (found[0], found[1], found[2]) if found else None
    return Seen(len(item["log_ratios"]), item["left"], interval, tuple(item["seconds"]), item.get("way", ""))


def notes_of(*races: Raced) -> list[str]:
    """What the report is to say of these races, in their order, each thing once."""
    own = [OWN_TIME] if any(raced.clock == "own" for raced in races) else []
    own += [_left_out_words(raced.pairs_left_out) for raced in races if raced.pairs_left_out]
    return list(dict.fromkeys([*own, *(note for raced in races for note in raced.notes)]))


def _left_out_words(pairs: int) -> str:
    last = f"last {pairs} pairs of blocks are" if pairs > 1 else "last pair of blocks is"
    return f"the {last} left out: since then so many were disturbed that they tell nothing, and figures are those of before"


def long_steps_words(*races: Raced) -> str:
    """Why a screened figure says too little of these trainings, "" where it does not.

    The middle of many ratios is that of usual steps. Where a few long ones hold much of the time, it is not what a run saves.
    """
    most = max((raced.share_of_long_steps for raced in races), default=0.0)
    if most < MOST_LONG:
        return ""
    return (
        f"{100 * most:.0f} % of the time lies in a few long steps (rollouts or an evaluation between two updates, say), of which "
        "the race in one training tells nothing; the race of fresh processes times them, and has not decided"
    )


def doubt_of(*races: Raced, figure: Interval | None = None, keys: Collection[str] = ()) -> str:
    """Why what these races say is not to be believed, "" where nothing speaks against it.

    A control left, was not raced long enough, or was told from the user's code. The last is no doubt of a `figure` that is faster
    by more than identical code came out different, faster or slower: all of it lies below the control's interval and its inverse.
    keys: of the entrants that are asked about; of a race that has none of them, all are. Only their own controls count.
    In fresh processes there is no such control, and no such doubt: what is measured there stands.
    """
    for raced in races:
        if why := _fault_of_controls(raced, figure, keys):
            return f"it was raced in one training only, and there the control, which is identical code, {why}"
    return ""


def _fault_of_controls(raced: Raced, figure: Interval | None, keys: Collection[str]) -> str:
    figures = [key for key, seen in raced.entrants.items() if key not in CONTROLS and seen.interval is not None]
    controls = {key: raced.controls_of(key) for key in [key for key in keys if key in raced.entrants] or figures}
    for seen in (seen for own in [*controls.values()] or [raced.controls] for seen in own):
        if seen.left:
            return f"left the race: {seen.left}"
        if seen.interval is not None and not seen.interval[1] <= 1 <= seen.interval[2]:
            ratio, low, high = seen.interval
            if figure is None or figure[2] >= min(low, 1 / high):
                return f"came out at {ratio:.3f} [{low:.3f}, {high:.3f}] in place of 1"
    if any(all(seen.interval is None for seen in own) for key, own in controls.items() if key in figures):
        return "was timed too briefly for an interval"
    return ""
