"""What interleaved measuring has seen: blocks by variant, round and generation of processes. Standard library only."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from perfaudit.measurements import ClockName, Losses, Settings

Json = dict[str, Any]  # Any: nested JSON


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration to measure: settings of a knob, or the user's code with other text. `key` names it uniquely.

    least_steps: in fewer, a block would time what its loader's workers have ready rather than what they can load.
    counts_tokens: its batches hold more or less from step to step, so that blocks say how much. untimed: steps before each
    block, in which what its loader's workers have ready is used up.
    """

    key: str
    knob: str
    settings: Settings
    overlay: dict[str, str] = field(default_factory=dict)  # patched text by path
    # The knob that applies the settings at run time, as module:attribute; "" where the overlay's text has them.
    applied: str = ""
    fixed_batch: bool = False  # without a knob: steps on one batch again and again, loading left out
    least_steps: int = 2
    counts_tokens: bool = False
    untimed: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    """A few steps timed in one go. `wall`, `cpu`, `queued` and `phases` are seconds of all steps together.

    restart_per_step: what starting an epoch costs, shared out among its steps; it is not in `wall`. queued: seconds its
    threads waited for a core, all together. phases: of which in each part of the step, "forward" or "optimizer". finite:
    whether the loss before the first of these steps was a number. own: wall seconds less the waiting for cores that others held,
    None where that cannot be told, see `own_time`. tokens, padding: of its batches; 0 where nobody asked, or they do not tell.
    """

    steps: int
    wall: float
    cpu: float
    samples: int
    restart_per_step: float = 0.0
    queued: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    finite: bool = True
    own: float | None = None
    tokens: int = 0
    padding: int = 0

    @property
    def own_per_step(self) -> float:
        """The same as `seconds_per_step` without waiting for cores; with it where that cannot be told."""
        return (self.wall if self.own is None else self.own) / self.steps + self.restart_per_step

    @property
    def seconds_per_step(self) -> float:
        return self.wall / self.steps + self.restart_per_step

    @property
    def cpu_per_step(self) -> float:
        return max(self.cpu / self.steps, 1e-9)

    def phases_per_step(self, names: tuple[str, ...]) -> float:
        """Seconds of a step that these phases take together."""
        return sum(self.phases.get(name, 0.0) for name in names) / self.steps


Pair = tuple[Block, Block]  # a variant's two blocks of one round, the second in mirrored order


@dataclass(slots=True)
class Generation:
    """Rounds of one set of fresh processes: for each round, the blocks of every variant that finished it."""

    stage: str
    rounds: list[dict[str, Pair]] = field(default_factory=list)


@dataclass(slots=True)
class Ledger:
    """Everything measured so far. It belongs to the caller, so that an interruption loses nothing."""

    generations: list[Generation] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # by key: why it is not measured any more
    checked: dict[str, str] = field(default_factory=dict)  # by key: what was checked before it was measured
    losses: dict[str, Losses] = field(
        default_factory=dict
    )  # by key: those that were compared then; not of an earlier run
    clock: ClockName | None = None  # by which variants are compared, once that is decided
    on_block: Callable[[str, float], None] = lambda key, seconds: None
    given_up: set[str] = field(default_factory=set)  # keys of variants that looked too slow to go on with
    seconds_to_open: float = 0.0  # a variant, with its warm-up, as the last ones took
    seconds_per_step: float = 0.0  # as the last one took
    on_nodes: int = 0  # generations that other machines have measured
    steps_to_end: int | None = None  # that processes of a training that ends have made before it; of the shortest one
    apart: str = ""  # why variants were measured one after the other, "" where they ran side by side
    # Each variant has as many samples a step as the others, but not the same ones: times are those of a token where all tell.
    by_tokens: bool = False

    def state(self) -> Json:
        """What a resumed run must know besides the generations."""
        told = {"failures": self.failures, "checked": self.checked, "seconds_to_open": self.seconds_to_open}
        told |= {"apart": self.apart} if self.apart else {}
        return told | ({} if self.steps_to_end is None else {"steps_to_end": self.steps_to_end})

    def take(self, state: Json) -> None:
        """Know what `state` gave in an earlier run."""
        self.failures.update(state.get("failures", {}))
        self.checked.update(state.get("checked", {}))
        self.apart = str(state.get("apart", self.apart))
        self.steps_to_end = state.get("steps_to_end", self.steps_to_end)
        self.seconds_to_open = float(state.get("seconds_to_open", self.seconds_to_open))

    def blocks(self, key: str) -> list[Block]:
        """Every timed block of a variant, in order."""
        return [block for g in self.generations for r in g.rounds for block in r.get(key, ())]

    def phases(self, key: str, clock: ClockName = "wall") -> dict[str, float]:
        """Seconds of each part of a variant's step, as medians of its blocks; {} where nothing was measured.

        clock: "own" leaves out of each part alike what it leaves out of a step.
        """
        blocks = self.blocks(key)
        names = dict.fromkeys(name for block in blocks for name in block.phases)

        def seconds(block: Block, name: str) -> float:
            share = block.own_per_step / block.seconds_per_step if clock == "own" else 1.0
            return share * block.phases_per_step((name,))

        return {name: statistics.median(seconds(block, name) for block in blocks) for name in names}

    def samples_per_step(self, key: str) -> float:
        """Samples of one step, 1.0 where nothing was measured: batches at the end of an epoch may be smaller."""
        blocks = self.blocks(key)
        return sum(b.samples for b in blocks) / sum(b.steps for b in blocks) if blocks else 1.0

    def generations_with(self, base: str, candidate: str, stage: str | None) -> int:
        """In how many generations of a stage some round holds both."""
        return sum(1 for _ in self._rounds(base, candidate, stage))

    def log_ratios(
        self, base: str, candidate: str, stage: str | None, value: Callable[[Pair], float]
    ) -> list[list[float]]:
        """Log ratio of a value per sample in every round that holds both, one list per generation that has any."""
        found = list(self._rounds(base, candidate, stage))
        if self.by_tokens:
            tells = self.tells_tokens(base, candidate)
            return [
                [
                    math.log(value(after) / value(before) * (tokens(before) / tokens(after) if tells else 1.0))
                    for before, after in rounds
                ]
                for rounds in found
            ]
        per_sample = self.samples_per_step(base) / self.samples_per_step(candidate)
        return [[math.log(value(after) / value(before) * per_sample) for before, after in rounds] for rounds in found]

    def tells_tokens(self, *keys: str) -> bool:
        """Whether times of these variants are compared by the token: each of their blocks says how many it had."""
        return self.by_tokens and all(block.tokens for key in keys for block in self.blocks(key))

    def log_ratios_of_piece(
        self, base: str, candidate: str, stage: str | None, phases: tuple[str, ...]
    ) -> list[list[float]]:
        """Log ratio of the step if only these phases changed: (step - base's piece + candidate's piece) / step of the base.

        The piece is timed inside the step, so this resolves changes that drown in the noise of the rest of it.
        """
        return [
            [
                math.log(max(1e-9, wall(before) - piece(before, phases) + piece(after, phases)) / wall(before))
                for before, after in rounds
            ]
            for rounds in self._rounds(base, candidate, stage)
        ]

    def _rounds(self, base: str, candidate: str, stage: str | None) -> Iterator[list[tuple[Pair, Pair]]]:
        for generation in self.generations:
            if stage is None or generation.stage == stage:
                both = [(r[base], r[candidate]) for r in generation.rounds if base in r and candidate in r]
                if both:
                    yield both


def wall(pair: Pair) -> float:
    """Seconds per step on the wall clock: the geometric mean of the two blocks, in which drift cancels."""
    return statistics.geometric_mean(block.seconds_per_step for block in pair)


def cpu(pair: Pair) -> float:
    """Processor seconds per step of the training process."""
    return statistics.geometric_mean(block.cpu_per_step for block in pair)


def own(pair: Pair) -> float:
    """The same as `wall` without waiting for cores that others held."""
    return statistics.geometric_mean(block.own_per_step for block in pair)


def tokens(pair: Pair) -> float:
    """Tokens a step, padding left out."""
    return statistics.geometric_mean(block.tokens / block.steps for block in pair)


def piece(pair: Pair, phases: tuple[str, ...]) -> float:
    """Seconds per step of these phases together."""
    return statistics.fmean(block.phases_per_step(phases) for block in pair)


def to_json(generation: Generation) -> Json:
    """A generation as plain data, for a journal."""
    return {
        "stage": generation.stage,
        "rounds": [{key: [dataclasses.asdict(b) for b in pair] for key, pair in r.items()} for r in generation.rounds],
    }


def from_json(data: Json) -> Generation:
    """The generation that `to_json` wrote. Raises TypeError, KeyError or ValueError for other data."""
    rounds = [{key: (Block(**a), Block(**b)) for key, (a, b) in entry.items()} for entry in data["rounds"]]
    return Generation(data["stage"], rounds)
