"""What a gate says: a verdict for each layer and target, and what it rests on. Imports the standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LAYERS = ("findings", "counters", "time")

# pass: no regression. improved: a gain was shown. regressed: a loss was shown. inconclusive: neither, within the budget.
# accepted: a loss that the project has accepted with a reason. not_judged: nothing to compare with (a new target, a layer
# that was not asked for, times of another machine); a layer fails nothing by it, and the whole is no pass. failed: could not
# be measured, which is no pass.
GateVerdict = Literal["pass", "improved", "regressed", "inconclusive", "accepted", "not_judged", "failed"]

Kind = Literal["ref", "baseline", "self_test"]

PER_SAMPLE = "per sample:"  # how a reason begins where steps of both versions have other samples


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's code where something is done `count` times more a step than before.

    what: what is done there, such as "item" or "aten::mul". path: relative to the working directory; line: from 1.
    """

    path: str
    line: int
    count: int
    what: str = ""


@dataclass(frozen=True, slots=True)
class CounterChange:
    """A counter of one training step that is not what it was, or has other parts. Values: counts, bytes, operations.

    by_name: by how much it changed for each operator or kind of sync, largest growth first; {} where it has no parts.
    places: lines to blame for growth, as far as they are known. accepted: why the project takes it, "" where it does not.
    allowed: whether the growth is within what the configuration tolerates for this counter.
    """

    counter: str
    before: int
    after: int
    by_name: dict[str, int] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    accepted: str = ""
    allowed: bool = False

    @property
    def grew(self) -> bool:
        return self.after > self.before

    @property
    def more_and_less(self) -> tuple[int, int]:
        """By how much those of its parts grew that grew, and by how much the others fell."""
        return sum(by for by in self.by_name.values() if by > 0), -sum(by for by in self.by_name.values() if by < 0)


@dataclass(frozen=True, slots=True)
class CountersVerdict:
    """Layer 2 for one target. counters: of one step as the code is now, by name.

    set_aside: counters that two runs of the same code did not agree on, or that only one side has, each with words.
    reason: why it is not judged, or what failed.
    """

    target: str
    verdict: GateVerdict
    reason: str = ""
    counters: dict[str, int] = field(default_factory=dict)
    changes: tuple[CounterChange, ...] = ()
    set_aside: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeVerdict:
    """Layer 3 for one target: seconds per step of the code as it is over those of the reference; above 1 it is slower.

    low, high: the interval of the ratio, 0 and inf where there is none. pairs: of processes, one of each side; quads: of
    blocks, two of each side. smallest: the smallest slowdown, as a share of the step, that could have been called;
    None without an interval. p: of "not slower than `tolerated`", over all looks, before targets are corrected together.
    limit: the slowdown that the interval must exclude for a pass. tolerated: the slowdown that never fails. Both shares.
    wall_over_cpu: of the reference's steps, in one training of those of the code as it is; load: the 1-minute average when
    measuring ended. advice: times from a file, which decide nothing. accepted: why the project takes the loss, "" where it
    does not.
    way: how both versions were compared, "one training" or "pairs of processes", "" where nothing was timed; why_so: what
    decided that. control: in one training the interval of the ratio of identical code to itself.
    """

    target: str
    verdict: GateVerdict
    reason: str = ""
    ratio: float | None = None
    low: float = 0.0
    high: float = float("inf")
    pairs: int = 0
    quads: int = 0
    seconds_before: float | None = None
    seconds_after: float | None = None
    smallest: float | None = None
    p: float | None = None
    limit: float = 0.05
    tolerated: float = 0.01
    wall_over_cpu: float | None = None
    load: float | None = None
    advice: bool = False
    accepted: str = ""
    way: str = ""
    why_so: str = ""
    control: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class FindingsVerdict:
    """Layer 1. new, known, gone: numbers of findings; the new ones are the report's findings.

    lost: which files could be audited before and cannot be now, in words; a layer with any is "failed" where it is not
    "regressed", whatever was accepted. unjudged: of which findings it is not known whether they are new, in words; a layer
    with any is "inconclusive" where it is neither of these.
    """

    verdict: GateVerdict
    reason: str = ""
    new: int = 0
    known: int = 0
    gone: int = 0
    accepted: int = 0  # new ones that the baseline of this change holds
    lost: str = ""
    unjudged: str = ""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The gate against itself, on identical code: what it can and cannot see on this machine.

    runs: how many gates were run for each target; false_alarms: how many of them called it regressed. smallest: for each
    run, the smallest slowdown it could have called, as a share of the step. seconds: of one run, as the median.
    """

    runs: int
    false_alarms: int
    undecided: int
    smallest: tuple[float, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Gate:
    """Everything one gate has judged. against: the reference in words: "origin/main (1f2e3d4c5b6a)" or a file's name.

    commit: the full hash of the reference, "" for a file. verdict: of all layers together: "regressed" where any is,
    else "failed" where any is, else "inconclusive", else "improved" where some layer shows a gain, else "pass";
    "not_judged" where nothing was, also where the budget ended before a single quad was timed. fails: whether that fails
    the build, which is where the exit code is not 0, unless `--exit-zero` makes it so. files: of scripts, by the target, which is
    their name or how they are typed.
    """

    against: str
    kind: Kind
    verdict: GateVerdict
    commit: str = ""
    fails: bool = False
    findings: FindingsVerdict | None = None
    counters: tuple[CountersVerdict, ...] = ()
    times: tuple[TimeVerdict, ...] = ()
    self_tests: dict[str, SelfTest] = field(default_factory=dict)  # by target
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    files: dict[str, str] = field(default_factory=dict)
