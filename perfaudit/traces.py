"""What traces of a profiler showed: `trace` of the report."""

from __future__ import annotations

from dataclasses import dataclass, field

# In the order of bars and tables; `trace.ranks[].shares` of the JSON has these names, which add up to 1.
SHARE_WORDS = {
    "compute": "computing",
    "communication_exposed": "communicating, not computing",
    "memory_exposed": "copying, nothing else",
    "idle_data": "idle: waiting for data",
    "idle_sync": "idle: the host waited for the device",
    "idle_allocation": "idle: memory allocation",
    "idle_launch": "idle: launching",
    "idle_other": "idle: other",
}

# What `notes` of a rank may hold, and what that means for its figures.
NOTE_WORDS = {
    "truncated": "The file ends in the middle: what comes after is missing.",
    "cut-work": "The file ends before all work of its steps, or the calls that launched it: nothing is concluded from it.",
    "damaged-text": "Some texts of the file are not UTF-8 and are read with replaced characters.",
    "odd-events": "Some events have no usable time (negative durations, texts, hours away from all others) and are left out.",
    "unpaired": "Some events begin without an end, or end without a beginning: they are left out.",
    "deep-nesting": "Values that are nested more than 64 levels deep are left out.",
    "times-as-text": "The file writes times as texts.",
    "nanoseconds": "The file counts nanoseconds.",
    "stacks": "Python stacks were recorded, which slows the host: without them the device would be idle for less time.",
    "export": "The file is one step that `perfaudit trace --export` cut out of a larger trace.",
    "part": "The file is too large to be analysed as a whole: this is the report of some steps from its middle.",
    "no-steps": "No steps are marked: the window goes from the first to the last piece of work, set-up included.",
    "repeated-steps": "Several steps have the same number: each of them counts as a step.",
    "graph-capture": "A CUDA graph is captured in the trace: kernels do not run while that lasts.",
    "buffer-broadcasts": "DistributedDataParallel broadcasts the buffers of the model in every step (broadcast_buffers).",
    "uneven-steps": "At least one step after the warm-up takes the device 1.3 times as long as the median step.",
    "unseen-work": "The host waits for work of the device that is not in the file: an excerpt, or work that was not recorded.",
    "missing-steps": "Some steps between the first and the last are missing from the file.",
    "warm-up": "Memory, code or a loader is set up in the trace: findings are of what follows, where something does.",
    "sampled": "The file has only a sample of the events: why the device was idle cannot be told.",
    "filtered": "Part of the work, or of the calls that launched it, is not in the file: causes of idle time are less certain.",
    "overlapping-ids": "Several calls have the same correlation id: work is matched to the latest of them before it.",
    "no-device": "The file has no work of a device, so it tells only how long the host waits for data.",
    "several-processes": "The file has several processes: steps are those of one, and work may be matched to calls of another.",
    "device-not-recorded": "The host launches work on a device that the profiler did not record.",
    "no-host": "The file has no events of the host: why the device was idle cannot be told.",
    "rank-from-name": "The rank is taken from the name of the file.",
}


@dataclass(frozen=True, slots=True)
class IdleWhere:
    """Where in the program a cause of idle time lies: its share of the window, the host's innermost annotation, its
    source line.
    """

    cause: str
    share: float
    annotation: str = ""
    operator: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel by name: its share of the window, and how often it runs in the window."""

    name: str
    share: float
    calls: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of one step: seconds from the step's start; kind: a name of SHARE_WORDS, that of most of it."""

    start: float
    end: float
    kind: str


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One device of one trace file.

    device: as PyTorch calls it ("cuda:0", "cpu"). window_seconds: from the first step to the end of the work that the
    last one launched.
    steps: how many are marked. shares: of the window, named as in SHARE_WORDS, adding up to 1. usual_shares: the same of what is
    behind the warm-up, {} for unknown. communication_overlap: the part of
    communication during which the device computes; None without communication. tensor_core_share: of the time in matrix products,
    the part on tensor cores; None where names do not tell. timeline: of the step that is nearest to the median, as fine as a
    picture shows it; timeline_seconds: what each kind takes of that step.
    """

    file: str
    rank: int | None
    device: str
    window_seconds: float
    steps: int
    shares: dict[str, float]
    communication_overlap: float | None = None
    tensor_core_share: float | None = None
    notes: tuple[str, ...] = ()
    device_name: str = ""
    seconds_per_step: float | None = None
    step_seconds: tuple[float, ...] = ()
    events: int = 0
    where: tuple[IdleWhere, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    timeline: tuple[Stretch, ...] = ()
    timeline_seconds: dict[str, float] = field(default_factory=dict)
    usual_shares: dict[str, float] = field(default_factory=dict)

    @property
    def has_device(self) -> bool:
        """Whether the shares are of a device; else they are of the host thread that trains."""
        return "no-device" not in self.notes


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank for which the others wait: it comes last to `last` of `of` collectives, for `share` of their window together."""

    rank: int
    last: int
    of: int
    share: float


@dataclass(frozen=True, slots=True)
class CollectiveWaits:
    """Waiting at collectives, for a map of ranks by collectives: seconds of each rank, a row a rank."""

    ranks: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    seconds: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A rule whose finding differs between two traces: upper bounds of the saving, None where there is no finding."""

    rule: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class TraceChange:
    """What changed from one trace to another.

    shares: differences in points of the window, by name. seconds: of each of them in a step, before and after; {} without steps.
    """

    before: str
    after: str
    seconds_per_step_before: float | None
    seconds_per_step_after: float | None
    shares: dict[str, float]
    findings: tuple[FindingChange, ...] = ()
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Traces:
    """All that was read. verdict: one line. more_findings: those beyond the five that a report shows.

    upper_bounds: of all findings, by rule.
    """

    verdict: str
    ranks: tuple[RankTrace, ...]
    stragglers: tuple[Straggler, ...] = ()
    waits: CollectiveWaits = field(default_factory=CollectiveWaits)
    more_findings: int = 0
    upper_bounds: dict[str, float] = field(default_factory=dict)
    compared: TraceChange | None = None


def duration(seconds: float) -> str:
    """A time of a trace with four digits, in the unit that keeps it readable: "13.34 s", "214.2 ms", "85.02 µs"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}" if seconds >= 1000 * size else f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} µs"
