"""What a run of an unmodified script showed: `run` of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfaudit.records import NamedTuple

# In the order in which reports show them; `run.phases` of the JSON has these names.
PHASE_WORDS = {
    "data_wait": "waiting for data",
    "host_to_device": "copies from host to device",
    "forward": "forward pass and loss",
    "backward": "backward pass",
    "optimizer": "optimizer",
    "average": "average of the weights",
    "host_reads": "reading tensors on the host",
    "other": "other",
}

NEVER_BUILT = "the script has built no module of this class"  # note of a finding in one

QUEUED = 0.15  # of the steps, for which threads waited for cores; the same as in a race (`measure.judge`)

HELP_PRINTED = "The script printed its help and ended."  # a message of a run
# How the message of a run ends that was ended before what reaches a server.
NOT_KEPT_AWAY = "that cannot be kept away, and was not done; --in-place runs it all the same"

SETUP_WORDS = {
    "until_torch": "until torch was imported",
    "until_loader": "until the loader was read",
    "until_batch": "until the first batch",
}


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """An operator or a kernel: its share of the time of all of them, and how often a step calls it."""

    name: str
    share: float
    calls: float


@dataclass(frozen=True, slots=True)
class StepsProfile:
    """Of some steps under torch.profiler, what takes most time first. why: there is none.

    operators: by their own time on the host, with a row for what is in none. kernels: of an accelerator.
    """

    steps: int
    operators: tuple[ProfileRow, ...] = ()
    kernels: tuple[ProfileRow, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class RankRun:
    """What one of several ranks did in the run.

    host: its node. own_seconds_per_step: the median of what a step takes it without the time in collectives, and in the queue
    for a core; None where that is not known. waited: share of its steps that it is in collectives. elements: of its
    batches, a step (tokens, where batches are texts). padding: share of padding in what its batches hold; None where no mask
    tells. stands: where it stood when it was ended, as `file:line in function`. The rest is as in `Run`; ended may also be
    "stopped", by perfaudit because of another rank, "dead" and "missing", of a rank that has never joined.
    """

    rank: int
    ended: str
    message: str = ""
    host: str = ""
    steps: int = 0
    seconds_per_step: float | None = None
    own_seconds_per_step: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    waited: float | None = None
    samples_per_second: float | None = None
    elements: float | None = None
    padding: float | None = None
    stands: str = ""


class RankUpdate(NamedTuple):
    """One update of a rank. Seconds: of all of it; of these in collectives, and at the end of backward passes; outside of
    collectives, waiting for a core that others held, and on one; waiting for data.

    elements, padding: of what its batches hold.
    """

    seconds: float
    waited: float
    in_buckets: float
    queued: float
    computed: float
    elements: int
    padding: int
    loading: float


@dataclass(frozen=True, slots=True)
class RankUpdates:
    """The last updates of a rank, in order, a column for each field of `RankUpdate`. first: the number of the first one."""

    first: int
    seconds: Sequence[float]
    waited: Sequence[float]
    in_buckets: Sequence[float]
    queued: Sequence[float]
    computed: Sequence[float]
    elements: Sequence[int]
    padding: Sequence[int]
    loading: Sequence[float]

    @classmethod
    def of(cls, first: int, updates: Sequence[RankUpdate]) -> RankUpdates:
        return cls(first, *([update[place] for update in updates] for place in range(len(RankUpdate._fields))))  # type: ignore[arg-type]  # by position, in one order

    @classmethod
    def from_word(cls, word: Mapping[str, Any]) -> RankUpdates | None:  # Any: nested JSON
        """Those of a rank's last word; None where it has made none, or has left no word."""
        updates = word.get("updates")
        return cls(**updates) if updates and updates["seconds"] else None

    @property
    def end(self) -> int:
        """The number behind the last one."""
        return self.first + len(self.seconds)

    def between(self, begin: int, end: int | None = None) -> RankUpdates:
        """Those with these numbers, the last one left out; to the end without one."""
        first = max(self.first, begin)
        stop = None if end is None else max(0, end - self.first)
        columns = (getattr(self, name)[first - self.first : stop] for name in RankUpdate._fields)
        return RankUpdates(first, *columns)


@dataclass(frozen=True, slots=True)
class LateRank:
    """A rank that the others wait for, or would wait for on equal cores.

    last: share of the steps in which it came last. seconds: by how much a step takes it longer than the mean of the
    others, without the time in collectives; low, high: the interval of it. only_idles: the seconds are of the time in which it
    sleeps, reads or waits; that it comes to collectives so much later was not shown.
    """

    rank: int
    last: float
    seconds: float
    low: float
    high: float
    only_idles: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Steps of a script as it was run, none of them repeated.

    steps: how many were seen. seconds_per_step: the median of those that count, see `script.summary`; None without any.
    mean_seconds_per_step, quartiles: of the same. samples_per_second: None where no batch was seen. phases: share of a step
    by name, which add up to 1. optimizers: how many a step has. backwards_in_update: of the backward passes of a step, calls
    of `backward` inside `optimizer.step(closure)`; gradients_per_step: those that `torch.autograd.grad` makes, which
    accumulate nothing; backwards_zeroed: others behind which gradients are set to zero before the update. setup_seconds: until
    the first batch; setup: of its parts, named as in SETUP_WORDS. setup_share: of the setup in all that was run. limited_by:
    "data", "host", "device" or "compute". redirected: files that were kept away.
    ended: "enough", "finished", "failed", "late", "interrupted" or, of a rank, "stopped"; message: why it failed. stands:
    where it stood when it was ended late, as `file:line in function`.
    has_long_updates: an update called its closure so often that each call is a step.
    is_regular: the order of the optimizers' updates repeats. uneven: steps left out of the figures, in which something
    happened besides that usual steps do not have: an evaluation, the beginning of an epoch; uneven_seconds: theirs.
    steps_watched: of the counted steps, those whose phases were timed, and whose sum the shares are of.
    in_started: the steps are those of one process that the script has started. ranks: processes of a launcher. is_traced: by a
    debugger or the like.
    by_rank: what each rank of a launcher did, where there are several. stragglers: those that the others wait for.
    communication_exposed: share of a step in collectives of the rank that waits least, which no computation hides.
    communication_overlap: share of the communication of DistributedDataParallel that computation hides, as torch counts it.
    imbalance: share of a step that ranks wait for whichever has most to do, on average. None where it is not known.
    batch_spread: what the fullest batch of a step holds, padding included, over the mean of all ranks; None likewise.
    queued: time for which threads of the training waited for a core that others held, together, as a share of its steps; None
    where that is not known.
    """

    script: str
    ended: str
    message: str = ""
    exit_code: int | None = None
    stands: str = ""
    steps: int = 0
    counted: int = 0
    seconds_per_step: float | None = None
    mean_seconds_per_step: float | None = None
    quartiles: tuple[float, float] | None = None
    samples_per_second: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    steps_watched: int = 0
    optimizers: int = 0
    optimizer_names: tuple[str, ...] = ()
    updates_per_step: int = 0
    backwards_per_step: float = 0.0
    backwards_in_update: float = 0.0
    gradients_per_step: float = 0.0
    backwards_zeroed: float = 0.0
    has_long_updates: bool = False
    is_regular: bool = True
    uneven: int = 0
    uneven_seconds: float = 0.0
    setup_seconds: float | None = None
    setup: dict[str, float] = field(default_factory=dict)
    setup_share: float | None = None
    limited_by: str | None = None
    device: str = ""
    peak_memory_bytes: int | None = None
    redirected: tuple[str, ...] = ()
    redirected_more: int = 0
    in_place: bool = False
    in_started: bool = False
    ranks: int = 1
    is_traced: bool = False
    queued: float | None = None
    by_rank: tuple[RankRun, ...] = ()
    stragglers: tuple[LateRank, ...] = ()
    communication_exposed: float | None = None
    communication_overlap: float | None = None
    imbalance: float | None = None
    batch_spread: float | None = None
    profile: StepsProfile | None = None

    @property
    def is_busy(self) -> bool:
        """Whether its threads were seen to wait for cores that others held."""
        return (self.queued or 0.0) >= QUEUED

    @property
    def is_refused(self) -> bool:
        """Whether it was ended before it did what cannot be kept away, see `NOT_KEPT_AWAY`."""
        return self.ended == "failed" and self.message.endswith(NOT_KEPT_AWAY)


def rank_with_most(phase: str, run: Run) -> RankRun | None:
    """The rank of which a phase takes the largest share of a step; None of a run without ranks."""
    return max(run.by_rank, key=lambda each: each.phases.get(phase, 0.0), default=None)
