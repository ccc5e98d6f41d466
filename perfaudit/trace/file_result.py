"""What is kept of a trace file once it was read: rows for reports, findings, and the collectives that ranks are compared by."""

from __future__ import annotations

from dataclasses import dataclass

from perfaudit.trace.whereabouts import Whereabouts
from perfaudit.traces import RankTrace


@dataclass(frozen=True, slots=True)
class TraceFinding:
    """What a check saw on one device: seconds is the most it could save of the window, share the same as a part of the usual
    steps, or of the window where no steps are marked.

    seconds_per_step: the same of one step; None where no steps are known, or for what does not recur.
    """

    rule: str
    message: str
    seconds: float
    share: float
    seconds_per_step: float | None
    rank: int | None
    device: str
    where: Whereabouts
    file: str = ""
    step: int | None = None  # the number of the step in which most of it lies


Key = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """A collective as one rank saw it, in seconds from the start of its window.

    key: operation, group, step and number in the step, which are the same on all ranks for the same collective. elements: of
    the rank's part, None where the trace does not say it.
    """

    key: Key
    start: float
    end: float
    busy_before: float  # computing since the collective before it
    exposed: float  # of it, the part during which nothing computes
    elements: int | None = None


@dataclass(frozen=True, slots=True)
class FileResult:
    """All that is kept of a file once it was read.

    job: what ranks of one job have in common, "" for unknown. began: seconds since 1970 at the start of the window, None
    where the file has relative times. steps: numbers of the first and the last marked step. is_outside: nothing of the file
    lies in the window that was asked for. export_of: the file that `--export` cut this one out of, "" for a whole trace.
    """

    file: str
    devices: tuple[RankTrace, ...] = ()
    findings: tuple[TraceFinding, ...] = ()
    collectives: tuple[CollectiveRow, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    job: str = ""
    problem: str = ""
    began: float | None = None
    steps: tuple[int, int] | None = None
    is_outside: bool = False
    export_of: str = ""
