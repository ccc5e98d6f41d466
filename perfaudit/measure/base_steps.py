"""What the timed blocks of a race have taken, those of its base above all. Child only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]  # Any: nested JSON

FEWEST_BLOCKS = 8  # of which the middle is that of a usual step


@dataclass(slots=True)
class BaseSteps:
    """What the base's timed blocks have taken.

    blocks: of each, seconds of a step that count, and those of the process. totals: of all of them, "steps", seconds that count
    ("counted"), on the wall ("wall"), of the process ("cpu"), of waiting for a core ("queued"), and by phase ("phases").
    of_kind: of the blocks of all, by what was in place in them, the same two and how many steps: in halves few are the base's.
    """

    blocks: list[tuple[float, float]] = field(default_factory=list)
    of_kind: dict[str, list[tuple[float, float, int]]] = field(default_factory=dict)
    totals: Json = field(
        default_factory=lambda: dict.fromkeys(("steps", "counted", "wall", "cpu", "queued"), 0.0) | {"phases": {}}
    )

    def add(self, seen: Mapping[str, float], phases: Mapping[str, float]) -> None:
        """One more block: all of the totals, and seconds by phase."""
        self.blocks.append((seen["counted"] / seen["steps"], seen["cpu"] / seen["steps"]))
        for known, more in ((self.totals, seen), (self.totals["phases"], phases)):
            for name, value in more.items():
                known[name] = known.get(name, 0.0) + value

    def add_of_kind(self, kind: str, steps: int, counted: float, cpu: float) -> None:
        """One more block of any: seconds of all its steps. kind: those of one kind take about as long."""
        self.of_kind.setdefault(kind, []).append((counted / steps, cpu / steps, steps))

    def summary(self) -> Json:
        """The totals, under "usual" the middle of the blocks, and under "long" the share of the time of all that is beyond it."""
        usual = [statistics.median(each) for each in zip(*self.blocks, strict=True)]
        return self.totals | {"usual": usual, "long": self.share_of_long_steps}

    @property
    def share_of_long_steps(self) -> float:
        """Of the time of all blocks, what some take beyond the middle of their kind: rollouts, an evaluation.

        Of the processor time as well, because a step is long, too, while others hold the cores.
        """
        kinds = [blocks for blocks in self.of_kind.values() if len(blocks) >= FEWEST_BLOCKS]
        shares = []
        for at in (0, 1):
            total = sum(block[at] * block[2] for blocks in kinds for block in blocks)
            middle = sum(statistics.median(b[at] for b in blocks) * sum(b[2] for b in blocks) for blocks in kinds)
            shares.append(1 - middle / total if total else 0.0)
        return max(0.0, min(shares))
