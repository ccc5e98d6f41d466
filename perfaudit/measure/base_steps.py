"""What the timed blocks of the base of a race have taken. Child only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]  # Any: nested JSON


@dataclass(slots=True)
class BaseSteps:
    """What the base's timed blocks have taken.

    blocks: of each, seconds of a step that count, and those of the process. totals: of all of them, "steps", seconds that count
    ("counted"), on the wall ("wall"), of the process ("cpu"), of waiting for a core ("queued"), and by phase ("phases").
    """

    blocks: list[tuple[float, float]] = field(default_factory=list)
    totals: Json = field(
        default_factory=lambda: dict.fromkeys(("steps", "counted", "wall", "cpu", "queued"), 0.0) | {"phases": {}}
    )

    def add(self, seen: Mapping[str, float], phases: Mapping[str, float]) -> None:
        """One more block: all of the totals, and seconds by phase."""
        self.blocks.append((seen["counted"] / seen["steps"], seen["cpu"] / seen["steps"]))
        for known, more in ((self.totals, seen), (self.totals["phases"], phases)):
            for name, value in more.items():
                known[name] = known.get(name, 0.0) + value

    def summary(self) -> Json:
        """The totals, and under "usual" the middle of the blocks."""
        return self.totals | {"usual": [statistics.median(each) for each in zip(*self.blocks, strict=True)]}
