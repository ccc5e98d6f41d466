"""What the time layer has seen of a target: pairs of processes, quads of blocks. Plain data; standard library only."""

from __future__ import annotations

import dataclasses
import math
import statistics
from dataclasses import dataclass, field
from typing import Any, Literal

Side = Literal["base", "head"]  # the reference, and the code as it is
Typical = Literal["median", "mean"]  # of the steps of a block

ORDERS: tuple[tuple[Side, Side, Side, Side], ...] = (("base", "head", "head", "base"), ("head", "base", "base", "head"))


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """Steps of one side in a row, timed one by one. `median` and `mean` are seconds of a step.

    restart_per_step: what starting an epoch costs, shared out among its steps; it is in neither of both. wall, cpu,
    queued: seconds of all steps together: that passed, that the process computed, that its threads waited for a core.
    """

    side: Side
    steps: int
    median: float
    mean: float
    restart_per_step: float
    wall: float
    cpu: float
    queued: float

    def seconds(self, typical: Typical) -> float:
        """Seconds of a typical step, restarts included."""
        return max((self.median if typical == "median" else self.mean) + self.restart_per_step, 1e-9)


@dataclass(frozen=True, slots=True)
class Quad:
    """Four blocks, two of each side, in an order in which a steady drift of the machine cancels."""

    blocks: tuple[TimedBlock, ...]

    def log_ratio(self, typical: Typical) -> float:
        """Log of the head's seconds over the base's: mean of the logs of two blocks on each side."""
        logs: dict[Side, list[float]] = {"base": [], "head": []}
        for block in self.blocks:
            logs[block.side].append(math.log(block.seconds(typical)))
        return statistics.fmean(logs["head"]) - statistics.fmean(logs["base"])


@dataclass(slots=True)
class Pair:
    """Two fresh processes, one of each side. first: which was opened first. opening: seconds until both were warm."""

    first: Side
    seed: int
    opening: float = 0.0
    quads: list[Quad] = field(default_factory=list)


@dataclass(slots=True)
class TargetRecord:
    """Everything measured of one target so far. It belongs to the caller, so that an interruption loses nothing.

    typical: what a block counts as. Where loader workers deliver several batches at a time, most steps do not wait and
    the median would not see the loader, so it is the mean there. failures: why a side does not run. reference: what the
    base is called. settled: the data ended the measuring, not the budget. load: 1-minute average at the end.
    """

    target: str
    reference: str = ""
    typical: Typical = "median"
    pairs: list[Pair] = field(default_factory=list)
    failures: dict[Side, str] = field(default_factory=dict)
    settled: bool = False
    load: float | None = None

    def groups(self) -> list[list[float]]:
        """Log ratios of the quads, one list per pair that has any."""
        return [[quad.log_ratio(self.typical) for quad in pair.quads] for pair in self.pairs if pair.quads]

    def blocks(self, side: Side) -> list[TimedBlock]:
        """Every block of a side, in order."""
        return [b for pair in self.pairs for quad in pair.quads for b in quad.blocks if b.side == side]

    def seconds_per_step(self, side: Side) -> float | None:
        """Of a typical step of this side, as the median of its blocks; None before the first quad."""
        blocks = self.blocks(side)
        return statistics.median(b.seconds(self.typical) for b in blocks) if blocks else None

    def wall_over_cpu(self) -> float | None:
        """Seconds that passed in the reference's steps over those its process computed: far above 1, it waits."""
        blocks = self.blocks("base")
        cpu = sum(b.cpu for b in blocks)
        return sum(b.wall for b in blocks) / cpu if cpu > 0 else None


def to_json(record: TargetRecord) -> dict[str, Any]:
    """A record as plain data: each quad is four rows with the fields of TimedBlock, seconds to six digits."""
    data = dataclasses.asdict(record)
    for pair in data["pairs"]:
        pair["opening"] = round(pair["opening"], 3)
        pair["quads"] = [[_row(block) for block in quad["blocks"]] for quad in pair["quads"]]
    return data


def from_json(data: dict[str, Any]) -> TargetRecord:
    """The record that `to_json` wrote. Raises TypeError, KeyError or ValueError for other data."""
    pairs = [
        Pair(**{**pair, "quads": [Quad(tuple(TimedBlock(*row) for row in rows)) for rows in pair["quads"]]})
        for pair in data["pairs"]
    ]
    return TargetRecord(**{**data, "pairs": pairs})


def _row(block: dict[str, Any]) -> list[Any]:
    return [float(f"{value:.6g}") if isinstance(value, float) else value for value in block.values()]
