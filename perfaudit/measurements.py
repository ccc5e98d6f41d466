"""What measuring gives: trials, comparisons, winners, the machine. Imports the standard library and findings only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from perfaudit.findings import Basis, FilePatch, Fix, Location, Saving

Settings = dict[str, object]  # one configuration of a knob: str, int, float, bool or None by name
Status = Literal["ok", "failed", "not_measured"]
Verdict = Literal["faster", "slower", "undecided"]
ClockName = Literal["wall", "cpu", "own"]

# How a note ends that says of the losses of the user's own code that they are no numbers.
DOES_NOT_LEARN = "times are of a training that does not learn"
# Why one is not handed over that was shown to pay.
UNCHECKED = "no time was left to check its patch"
NOT_REACHED_YET = "the run was interrupted before its patch was checked"
FILE_CHANGED = "its file changed while it was measured"
PAY_ALL_THE_SAME = (UNCHECKED, NOT_REACHED_YET, FILE_CHANGED)
NOT_CLAIMED = "equality is not claimed"  # of losses, in what a check says of a patch that is another training
NO_TIME = "no time was left for it in the budget"  # why a knob was not tried, where more time would have it tried


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration of a knob, measured or failed with a reason.

    `metric` is "seconds_per_step" or "samples_per_second"; median, low and high (quartiles of the blocks) are in it.
    `n` is the number of blocks, `samples` holds every block's seconds per step.
    """

    knob: str
    settings: Settings
    status: Status
    metric: str = "seconds_per_step"
    median: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    peak_memory_bytes: int | None = None
    reason: str = ""
    samples: tuple[float, ...] = ()
    # ema: what keeping the average adds to a step; middle, low, high (None where too few rounds were finished)
    added_seconds: tuple[float, float | None, float | None] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Time per step (per sample where the batch size differs) of candidate over baseline; below 1 is faster.

    `low` and `high` bound the ratio; both are 0 and inf where too few rounds were finished to say, and `ratio` is then
    the middle of what there is, and none before there is anything (`has_ratio`). `clock` is "cpu" where the
    processor time of the training process was compared, because others used the machine (see `judge.clock_for`), and "own" where
    waiting for cores that others held was left out (see `measure.own_time`). `of`: "step" where whole steps were compared;
    "optimizer", "forward+backward" and so on where only these phases were, timed inside the step, and the ratio says what the
    step becomes if nothing else changes. `smallest` is the smallest effect that could have been called, as a share of the step.
    `given_up`: it looked so slow that it was not measured on, which is a reason to leave it and no proof that it is slower.
    `without_loading`: steps on one batch were compared. `basis`: "screened" where the candidate was put in place in one running
    training, in turn with the code as it is; `n` then counts quads, or pairs of blocks where `in_halves` says that half of the
    other candidates were in place, and `way` says how: "code", "setting", "loader" or "twin". `per`: "token" where steps hold
    other samples than those of the baseline, and times are divided by their tokens.
    """

    knob: str
    baseline: Settings
    candidate: Settings
    ratio: float
    low: float
    high: float
    verdict: Verdict
    n: int = 0
    clock: ClockName = "wall"
    of: str = "step"
    smallest: float | None = None
    given_up: bool = False
    without_loading: bool = False
    basis: Basis = "measured"
    way: str = ""
    per: str = "step"
    in_halves: bool = False

    @property
    def has_ratio(self) -> bool:
        """Whether `ratio` was measured: in one training a candidate may have entered the race and have no time yet."""
        return self.basis != "screened" or self.n > 0

    @property
    def says_something(self) -> bool:
        """Whether it has an interval, or was given up: what was raced too briefly says nothing."""
        return self.given_up or math.isfinite(self.high)


@dataclass(frozen=True, slots=True)
class TwinControl:
    """The user's code against itself in a second training: quads, and their ratio with its interval, None of too few."""

    rounds: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Calibration:
    """The user's code against itself (A/A): the noise of this machine, and what a step consists of.

    ratio: of the seconds per step of a control, identical code that is put in place as candidates are; `low` and `high` bound it,
    None of too few quads, and where they exclude 1 this run is not to be trusted. control_way: how it was put in place, "code" or
    "twin"; candidates of other ways have no control of their own. scatter: standard deviation of the log ratio of one quad, None
    of one; rounds: how many quads, or pairs of blocks where `in_halves` says that the control was raced in these with half of the
    candidates in place; of_twins: the control of candidates that were raced as a second training beside these, None where there
    was none; phases: seconds of each part of the step. computes_alone: on the CPU without loader workers, so that wall
    over CPU tells how busy the machine is. cpu_per_step: seconds of processor time of all threads; None in reports of before
    it was told.
    """

    seconds_per_step: float
    wall_over_cpu: float
    scatter: float | None
    ratio: float
    rounds: int
    computes_alone: bool
    phases: dict[str, float]
    queued: float = 0.0  # seconds that its threads waited for cores, together, over those of the step: others held them
    low: float | None = None
    high: float | None = None
    control_way: str = ""
    clock: ClockName = "wall"
    in_halves: bool = False
    cpu_per_step: float | None = None
    of_twins: TwinControl | None = None

    @property
    def controls(self) -> dict[str, Interval]:
        """The controls that have an interval: "own" of the code as it is, "twins" of a second training beside that."""
        found, twins = dict[str, Interval](), self.of_twins
        if self.low is not None and self.high is not None:
            found["own"] = (self.ratio, self.low, self.high)
        if twins is not None and twins.ratio is not None and twins.low is not None and twins.high is not None:
            found["twins"] = (twins.ratio, twins.low, twins.high)
        return found


def computing(profile: Mapping[str, float]) -> float:
    """The share of a step that is not loading and copying batches. profile: seconds by phase; without any, all of it."""
    whole = sum(profile.values())
    return 1 - (profile.get("loading", 0.0) + profile.get("transfer", 0.0)) / whole if whole else 1.0


@dataclass(frozen=True, slots=True)
class Winner:
    """What a knob recommends: a setting that was measured faster, or the current one, with the patch or the words."""

    knob: str
    settings: Settings
    keeps_current: bool
    words: str
    saving: Saving | None = None
    fix: Fix | None = None
    location: Location | None = None
    verified: str = ""  # what was checked on the patched source
    remarks: tuple[str, ...] = ()
    handed_over: str = ""  # how it gets into the source where there is no patch; "" for by hand


Interval = tuple[float, float, float]  # a ratio of seconds per step: middle, low, high


@dataclass(frozen=True, slots=True)
class Rung:
    """One patch of a climb: screened in a training that runs, and kept or taken out again.

    ratio, low, high: seconds per step with this patch alone over those of the user's code. All of the whole step, loading
    with it. beside: seconds per step of all rungs over those of all but this one, in the same training; None where that
    was not raced. Of a rung that cannot stand in a training that runs, all is of fresh processes, and ratio None beside others.
    in_halves: this ratio was taken with half of the other candidates in place, so that it lies between what the patch gains
    alone and what it gains beside all others.
    ratio is None, too, of one that had too few quads or pairs of blocks for an interval; `quads` says how many.
    way: how it was put in place ("code", "setting", "loader" or "twin"). dropped: why it was taken out again,
    "" for a rung that stayed.
    """

    knob: str
    settings: Settings
    words: str
    changes: tuple[str, ...]
    location: Location
    diff: str  # against the rungs before it
    ratio: float | None
    low: float
    high: float
    quads: int = 0
    way: str = ""
    beside: Interval | None = None
    basis: Basis = "screened"
    dropped: str = ""
    in_halves: bool = False


@dataclass(frozen=True, slots=True)
class Losses:
    """The first losses of the user's code and of the patched one, from one seed.

    tolerance: for each of the first steps, how far the patched loss may lie from the other, as a share of that; () where nothing
    is promised of them, or where both are the same to the bit.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    tolerance: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Ladder:
    """What a climb has come to: its rungs, one patch of all that stayed, and the final race of that patch.

    ratio, low, high: seconds per step with the patch over those of the user's code, by `basis`: "measured" in the final race
    of fresh processes or, where that did not decide in its time, "screened" in the training that ran; None, 0 and inf, and
    None as the basis, where neither is known. has_twin: the figure is screened, and a second training, whose memory lies
    elsewhere, had a part in it.
    rounds: of the final race; final_so_far: its ratio where it did not decide, None without a round. screened: all rungs at once,
    in the training that ran. seconds_per_step: of
    the user's code in the race that `ratio` is of; patched_seconds_per_step: what the ratio makes of it. verified: what the
    losses of both said. left: what was not climbed, and why. undecided: knobs with a candidate that more time would decide.
    failed: knobs of which every candidate is out of the race, because it failed (a step raises with it, say) or could not take
    part. trouble: why no patch is handed over, "" where one is or where no rung was accepted. untested: knobs of rungs that were
    not raced against the rest without them. not_learning: the note that the user's own losses became no numbers, "" where they
    did not; `verified` is then of steps before that, and says so. offered: knobs of which a patch was shown to pay that changes
    more than is allowed; offered_ratios: what each of them takes of the step, screened; allow_command: the one that allows them,
    "" where there are none. losses: those that were compared, None where that was in another run or not at all. phases,
    patched_phases: seconds of each part of a step of both in the final race, {} where they were not timed there.
    is_chosen_by_it: the figure is the product of those by which the patches were chosen.
    """

    rungs: tuple[Rung, ...] = ()
    files: tuple[FilePatch, ...] = ()
    changes: tuple[str, ...] = ()
    ratio: float | None = None
    low: float = 0.0
    high: float = float("inf")
    basis: Basis | None = None
    clock: ClockName = "wall"
    rounds: int = 0
    screened: Interval | None = None
    verified: str = ""
    seconds_per_step: float | None = None
    patched_seconds_per_step: float | None = None
    peak_memory_bytes: int | None = None
    patched_peak_memory_bytes: int | None = None
    left: tuple[NotApplicable, ...] = ()
    undecided: tuple[str, ...] = ()
    trouble: str = ""
    untested: tuple[str, ...] = ()
    has_twin: bool = False
    not_learning: str = ""
    failed: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    losses: Losses | None = None
    phases: dict[str, float] = field(default_factory=dict)
    patched_phases: dict[str, float] = field(default_factory=dict)
    final_so_far: Interval | None = None
    is_chosen_by_it: bool = False
    offered_ratios: dict[str, Interval] = field(default_factory=dict)
    allow_command: str = ""

    def with_(self, **changes: object) -> Ladder:
        """A copy with some fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]  # field names are checked at run time


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """A knob that was not searched, and why. late: it may matter, and more time would have it tried."""

    knob: str
    reason: str
    late: bool = False


@dataclass(frozen=True, slots=True)
class OwnLoop:
    """A training loop that is not measured, because the factories of its file are.

    function: in which it stands, "" at the top level. factories: names of the functions that are measured. module: by which
    `-m` runs the file as a script, "" where that is not known to be the same as running the file.
    """

    path: str
    line: int
    function: str
    factories: tuple[str, ...]
    module: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and versions a measurement belongs to. Memory is bytes; load is the 1-minute average at the start."""

    device: str
    python: str
    platform: str
    cores: int
    memory_bytes: int
    torch: str = ""
    driver: str = ""
    threads: int = 0
    commit: str = ""
    load: float | None = None


def settings_text(settings: Settings) -> str:
    """Settings on one line: "num_workers=2, pin_memory=False"; what is None is left out."""
    return ", ".join(f"{key}={value}" for key, value in settings.items() if value is not None)
