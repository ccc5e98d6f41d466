"""What the timed blocks of a race have taken, those of its base above all. Child only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = dict[str, Any]  # Any: nested JSON

FEWEST_BLOCKS = 8  # of which the middle is that of a usual step
# Which of the blocks, in order of how much of them was waiting for cores, waits as usual. Where others hold cores all the time,
# that much of a long step is waiting as well, and is no reason for its length. Not the middle: of short blocks many meet nobody.
USUAL_WAITING = 0.75


class BlockTime(NamedTuple):
    """A block: its steps, and seconds that count, of the process, on the wall, and of its threads' waiting for cores."""

    steps: int
    counted: float
    cpu: float
    wall: float = 0.0
    queued: float = 0.0


@dataclass(slots=True)
class BaseSteps:
    """What the base's timed blocks have taken.

    blocks: of each, seconds of a step that count, and those of the process. totals: of all of them, "steps", seconds that count
    ("counted"), on the wall ("wall"), of the process ("cpu"), of waiting for a core ("queued"), and by phase ("phases").
    of_kind: the blocks of all, by what was in place in them: in halves few are the base's. by_others: seconds that other
    programs were on cores in all that time; no more than that is taken for waiting for them.
    """

    blocks: list[BlockTime] = field(default_factory=list)
    of_kind: dict[str, list[BlockTime]] = field(default_factory=dict)
    by_others: float = 0.0
    totals: Json = field(
        default_factory=lambda: dict.fromkeys(("steps", "counted", "wall", "cpu", "queued"), 0.0) | {"phases": {}}
    )

    def add(self, seen: BlockTime, phases: Mapping[str, float]) -> None:
        """One more block of the base, and its seconds by phase."""
        self.blocks.append(seen)
        for known, more in ((self.totals, seen._asdict()), (self.totals["phases"], phases)):
            for name, value in more.items():
                known[name] = known.get(name, 0.0) + value

    def add_of_kind(self, kind: str, seen: BlockTime) -> None:
        """One more block of any. kind: those of one kind take about as long."""
        self.of_kind.setdefault(kind, []).append(seen)

    def summary(self) -> Json:
        """The totals, and under "long" the share of the time that a few long steps take beyond usual ones.

        Of the base's blocks, or of all, whichever is more.
        """
        kinds = [blocks for blocks in self.of_kind.values() if len(blocks) >= FEWEST_BLOCKS]
        return self.totals | {"long": max(self._share_of_long([self.blocks]), self._share_of_long(kinds))}

    def _share_of_long(self, kinds: Sequence[Sequence[BlockTime]]) -> float:
        """Of the time of all blocks, what some take beyond the middle of their kind: rollouts, an evaluation.

        Of the processor time as well, because a step is long, too, while others hold the cores. Threads that spin while they wait
        for one another spend that time as well, so what such a block waited for cores beyond the usual is left out of both.
        """
        shares = []
        for clock in ("counted", "cpu"):
            total, beyond, waited = 0.0, 0.0, 0.0
            for blocks in filter(None, kinds):
                own = [getattr(block, clock) for block in blocks]
                middle = statistics.median(mine / block.steps for mine, block in zip(own, blocks, strict=True))
                rate = _usual_waiting(blocks)
                total += sum(own)
                for mine, block in zip(own, blocks, strict=True):
                    more = mine - middle * block.steps
                    beyond += more
                    waited += max(0.0, min(more, block.queued - rate * block.wall))
            waited = min(waited, self.by_others)
            shares.append((beyond - waited) / (total - waited) if total > waited else 0.0)
        return max(0.0, min(shares))


def _usual_waiting(blocks: Sequence[BlockTime]) -> float:
    """Seconds that threads usually wait for cores in a second of these blocks."""
    rates = sorted(block.queued / block.wall if block.wall else 0.0 for block in blocks)
    return rates[min(len(rates) - 1, int(USUAL_WAITING * len(rates)))]
