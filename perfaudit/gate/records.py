"""What the time layer has seen of a target: quads of blocks, in pairs of processes or in one training. Plain data; no torch."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from perfaudit.gate.signed_rank import hodges_lehmann

Side = Literal["base", "head"]  # the reference, and the code as it is
Typical = Literal["median", "mean"]  # of the steps of a block
Blocks = Literal["short", "long"]  # see `pair_plan.plan_pair`
Way = Literal["one training", "pairs of processes"]

SIDES: tuple[Side, Side] = ("base", "head")

# Share by which samples per step of both sides may differ and count as the same: the mean over blocks that end in other
# places of an epoch does. It is no more than what a step may be slower without failing.
SAME_SAMPLES = 0.01

ORDERS: tuple[tuple[Side, Side, Side, Side], ...] = (("base", "head", "head", "base"), ("head", "base", "base", "head"))


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """Steps of one side in a row, timed one by one. `median` and `mean` are seconds of a step.

    restart_per_step: what starting an epoch costs, shared out among its steps; it is in neither of both. wall, cpu,
    queued: seconds of all steps together: that passed, that the process computed, that its threads waited for a core.
    median_samples, mean_samples: samples of a step, 0 where they are not known.
    """

    side: Side
    steps: int
    median: float
    mean: float
    restart_per_step: float
    wall: float
    cpu: float
    queued: float
    median_samples: float = 0.0
    mean_samples: float = 0.0

    def seconds(self, typical: Typical) -> float:
        """Seconds of a typical step, restarts included."""
        return max((self.median if typical == "median" else self.mean) + self.restart_per_step, 1e-9)

    def samples(self, typical: Typical) -> float:
        """Samples of a typical step: where that is the median, a smaller batch at the end of an epoch is left out."""
        return self.median_samples if typical == "median" else self.mean_samples


@dataclass(frozen=True, slots=True)
class Quad:
    """Rounds of four blocks, two of each side, in orders in which a steady drift of the machine cancels."""

    blocks: tuple[TimedBlock, ...]

    def log_ratio(self, typical: Typical) -> float:
        """Log of the head's seconds over the base's: centre over the rounds, of which a third may be anything."""
        return hodges_lehmann([_log_ratio(self.blocks[i : i + 4], typical) for i in range(0, len(self.blocks), 4)])


def _log_ratio(blocks: Sequence[TimedBlock], typical: Typical) -> float:
    logs: dict[Side, list[float]] = {"base": [], "head": []}
    for block in blocks:
        logs[block.side].append(math.log(block.seconds(typical)))
    return statistics.fmean(logs["head"]) - statistics.fmean(logs["base"])


@dataclass(slots=True)
class Pair:
    """Two fresh processes, one of each side.

    first: which was opened first. opening: seconds until both were warm. quad_seconds: that a quad was expected to take.
    """

    first: Side
    seed: int
    opening: float = 0.0
    quads: list[Quad] = field(default_factory=list)
    quad_seconds: float = 0.0


@dataclass(slots=True)
class OneTraining:
    """Quads of both versions in turn in one training, in the order they were run.

    log_ratios: of the head's seconds over the base's. seconds: of a step of the base, by quad. control: log ratios of
    identical code, put in place as the base is. wall_over_cpu: of the head's steps.
    """

    log_ratios: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)
    wall_over_cpu: float | None = None


@dataclass(slots=True)
class TargetRecord:
    """Everything measured of one target so far. It belongs to the caller, so that an interruption loses nothing.

    typical: what a block counts as. Where loader workers deliver several batches at a time, most steps do not wait and
    the median would not see the loader, so it is the mean there. failures: why a side does not run. reference: what the
    base is called. settled: the data ended the measuring, not the budget. interrupted: neither did. load: 1-minute average
    at the end. length: of its blocks. seed: of the first pair, from which the order of everything is drawn; each pair adds one.
    one: what was seen in one training, None where pairs of processes are measured; why: it is the one or the other.
    is_begun: its turn has come. steps_to_end: of each process of a training that comes to its end, after the warm-up; None where
    none did.
    """

    target: str
    reference: str = ""
    typical: Typical = "median"
    length: Blocks = "long"
    pairs: list[Pair] = field(default_factory=list)
    failures: dict[Side, str] = field(default_factory=dict)
    settled: bool = False
    load: float | None = None
    interrupted: bool = False
    seed: int | None = None
    one: OneTraining | None = None
    why: str = ""
    is_begun: bool = False
    steps_to_end: int | None = None

    @property
    def way(self) -> Way:
        """How both versions are compared."""
        return "pairs of processes" if self.one is None else "one training"

    def state(self) -> dict[str, Any]:
        """What a resumed gate must know besides the pairs."""
        names = ("failures", "typical", "length", "steps_to_end", "one", "why", "settled", "is_begun")
        return {name: value for name, value in dataclasses.asdict(replace(self, pairs=[])).items() if name in names}

    def take(self, state: dict[str, Any]) -> None:
        """Know what `state` gave in an earlier run."""
        for name, value in state.items():
            setattr(self, name, OneTraining(**value) if name == "one" and value else value)

    def groups(self) -> list[list[float]]:
        """Log ratios of the quads, one list per pair that has any; per sample where steps are not of the same samples."""
        before, after = self.samples_per_step() or (1.0, 1.0)
        per_sample = math.log(before / after)
        return [[quad.log_ratio(self.typical) + per_sample for quad in pair.quads] for pair in self.pairs if pair.quads]

    def log_ratios(self) -> list[float]:
        """Of all quads, in the order they were run."""
        return (
            list(self.one.log_ratios) if self.one is not None else [value for group in self.groups() for value in group]
        )

    def samples_per_step(self) -> tuple[float, float] | None:
        """Samples of a typical step of (base, head); None where they are the same, or one is not known."""
        before, after = (
            statistics.median([block.samples(self.typical) for block in self.blocks(side)] or [0.0]) for side in SIDES
        )
        if not before or not after or abs(math.log(after / before)) <= SAME_SAMPLES:
            return None
        return before, after

    def blocks(self, side: Side) -> list[TimedBlock]:
        """Every block of a side, in order."""
        return [b for pair in self.pairs for quad in pair.quads for b in quad.blocks if b.side == side]

    def seconds_per_step(self, side: Side) -> float | None:
        """Of a typical step of this side, as the median of its blocks; None before the first quad."""
        if self.one is not None:
            logs = self.one.log_ratios if side == "head" else [0.0] * len(self.one.seconds)
            steps = [seconds * math.exp(log) for seconds, log in zip(self.one.seconds, logs, strict=True)]
            return statistics.median(steps) if steps else None
        blocks = self.blocks(side)
        return statistics.median(b.seconds(self.typical) for b in blocks) if blocks else None

    def wall_over_cpu(self) -> float | None:
        """Seconds that passed in the reference's steps over those its process computed: far above 1, it waits.

        In one training it is of the steps of the code as it is.
        """
        if self.one is not None:
            return self.one.wall_over_cpu
        blocks = self.blocks("base")
        cpu = sum(b.cpu for b in blocks)
        return sum(b.wall for b in blocks) / cpu if cpu > 0 else None


def pair_to_json(pair: Pair) -> dict[str, Any]:
    """A pair as plain data: each block of a quad is a row with the fields of TimedBlock, seconds to six digits."""
    quads = [[_row(dataclasses.astuple(block)) for block in quad.blocks] for quad in pair.quads]
    return {**dataclasses.asdict(pair), "opening": round(pair.opening, 3), "quads": quads}


def pair_from_json(data: dict[str, Any]) -> Pair:
    """The pair that `pair_to_json` wrote. Raises TypeError, KeyError or ValueError for other data."""
    return Pair(**{**data, "quads": [Quad(tuple(TimedBlock(*row) for row in rows)) for rows in data["quads"]]})


def _row(block: tuple[Any, ...]) -> list[Any]:
    return [float(f"{value:.6g}") if isinstance(value, float) else value for value in block]
