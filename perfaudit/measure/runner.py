"""Interleaved measuring of variants: who runs when, how long, and what was seen. Knows no torch and no process."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from perfaudit.findings import Saving
from perfaudit.measure.clock import Deadline
from perfaudit.measure.stats import TooFewRounds, quartiles, ratio_interval, verdict
from perfaudit.measurements import ClockName, Comparison, Settings, Trial

BLOCK_SECONDS = 0.35  # long against a timer tick and a scheduler slice, short against drift of the machine
GENERATIONS = 6  # of processes: two processes of identical code differ by up to 2.2 × what one pair predicts
ROUNDS = 3  # per generation; 6 × 3 = 18 rounds, each variant twice a round
QUEUED = 0.15  # share of the wall seconds that a training's threads waited for a core; from here on, others held them
EXPLAINED = 0.9  # share of the wall seconds that computing and waiting for a core must explain; else it waits for data
FEWEST_STEPS = 2


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration to measure: settings of a knob, or the user's code with other text. `key` names it uniquely."""

    key: str
    knob: str
    settings: Settings
    overlay: dict[str, str] = field(default_factory=dict)
    apply_knob: bool = True  # False: the settings are in the overlay's text, not applied at run time
    fixed_batch: bool = False  # without a knob: steps on one batch again and again, loading left out


@dataclass(frozen=True, slots=True)
class Block:
    """A few steps timed in one go. `wall` and `cpu` are seconds of all steps together."""

    steps: int
    wall: float
    cpu: float
    samples: int
    restart_per_step: float = 0.0
    queued: float = 0.0  # seconds its threads waited for a core, all together
    piece_per_step: float = 0.0  # of which in the piece that a knob changes, such as the update of an average

    @property
    def seconds_per_step(self) -> float:
        return self.wall / self.steps + self.restart_per_step

    @property
    def cpu_per_step(self) -> float:
        return self.cpu / self.steps


class Subject(Protocol):
    """A variant that is set up and warm."""

    def block(self, steps: int) -> Block:
        """Run and time so many steps; everything else stands still. Raises TrialFailed."""

    def close(self) -> None: ...


class Lab(Protocol):
    """Sets variants up. Raising TrialFailed says why one cannot be measured."""

    def open(self, variants: Sequence[Variant]) -> dict[str, Subject | TrialFailed]:
        """All these variants side by side, warmed up; a failure in place of a subject."""


class TrialFailed(Exception):
    """A variant that cannot be measured, and why: the message is a result."""


@dataclass(slots=True)
class Ledger:
    """Everything measured so far. It belongs to the caller, so that an interruption loses nothing.

    rounds: for each generation of processes, for each round, seconds per step by variant (geometric mean of its two
    blocks); cpu: the same in processor seconds of the training process; pieces: seconds of the piece that a knob changes.
    blocks, cpu_blocks, queued_blocks: every block's wall, processor and waiting seconds per step by variant.
    """

    rounds: list[list[dict[str, float]]] = field(default_factory=list)
    cpu: list[list[dict[str, float]]] = field(default_factory=list)
    pieces: list[list[dict[str, float]]] = field(default_factory=list)
    blocks: dict[str, list[float]] = field(default_factory=dict)
    cpu_blocks: dict[str, list[float]] = field(default_factory=dict)
    queued_blocks: dict[str, list[float]] = field(default_factory=dict)
    samples_per_step: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    on_block: Callable[[str, float], None] = lambda key, seconds: None

    def log_ratios(
        self, base: str, candidate: str, generations: slice = slice(None), clock: ClockName = "wall"
    ) -> list[list[float]]:
        """Log ratio of the time per sample in every round that holds both, one list per generation."""
        rounds = self.rounds if clock == "wall" else self.cpu
        per_sample = self.samples_per_step.get(base, 1.0) / self.samples_per_step.get(candidate, 1.0)
        return [
            [math.log(r[candidate] / r[base] * per_sample) for r in generation if base in r and candidate in r]
            for generation in rounds[generations]
        ]

    def log_ratios_of_piece(self, base: str, candidate: str, generations: slice = slice(None)) -> list[list[float]]:
        """Log ratio of the step if only the piece changed: (step - base's piece + candidate's piece) / step of the base.

        The piece is timed inside the step, so this resolves changes that drown in the noise of the rest of it.
        """
        found = []
        for steps, pieces in zip(self.rounds[generations], self.pieces[generations], strict=False):
            both = [
                (s[base], p[base], p[candidate])
                for s, p in zip(steps, pieces, strict=False)
                if base in p and candidate in p
            ]
            found.append([math.log(max(1e-9, step - before + after) / step) for step, before, after in both])
        return found


def measure(
    lab: Lab,
    variants: Sequence[Variant],
    ledger: Ledger,
    deadline: Deadline,
    seed: int,
    generations: int = GENERATIONS,
    rounds: int = ROUNDS,
    block_seconds: float = BLOCK_SECONDS,
) -> None:
    """Measure variants interleaved, into the ledger, in several generations of fresh processes; the first is the base.

    Each round runs all variants in random order and then in the reverse order. A variant that fails leaves with its
    reason and the others go on; without the base there is nothing to go on for. The deadline ends it between rounds, so
    that every variant has as many blocks; the first round of a generation is always made.
    """
    order = random.Random(seed)
    for generation in range(generations):
        alive = [variant for variant in variants if variant.key not in ledger.failures]
        if len(alive) < min(2, len(variants)) or not deadline.left():
            return
        before = deadline.left()
        opened = lab.open(alive)
        subjects: dict[str, Subject] = {}
        for key, item in opened.items():
            if isinstance(item, TrialFailed):
                ledger.failures[key] = str(item)
            else:
                subjects[key] = item
        if variants[0].key in ledger.failures:  # nothing left to compare with
            for subject in subjects.values():
                subject.close()
            return
        try:
            later = generations - generation - 1  # each of which will take as long to open as this one did
            share = max(0.0, deadline.left() - later * (before - deadline.left())) / (later + 1)
            _generation(subjects, ledger, deadline, order, rounds, block_seconds, share)
        finally:
            for subject in subjects.values():
                subject.close()


def _generation(
    subjects: dict[str, Subject],
    ledger: Ledger,
    deadline: Deadline,
    order: random.Random,
    rounds: int,
    block_seconds: float,
    share: float,
) -> None:
    steps: dict[str, int] = {}
    round_seconds = 0.0
    for key, subject in list(subjects.items()):  # calibration: how many steps make a block
        first = _block(key, subject, FEWEST_STEPS, subjects, ledger)
        if first is not None:
            per_step = max(first.seconds_per_step, 1e-6)
            steps[key] = max(FEWEST_STEPS, min(2000, round(block_seconds / per_step)))
            round_seconds += 2 * (steps[key] + 1) * per_step  # one step of each block is not timed
    if round_seconds > share > 0:  # a small budget makes shorter blocks rather than too few rounds for an interval
        steps = {key: max(FEWEST_STEPS, int(n * share / round_seconds)) for key, n in steps.items()}
        round_seconds = share
    affordable = max(1, min(rounds, int(share / max(round_seconds, 1e-9))))
    done: list[dict[str, float]] = []
    cpu: list[dict[str, float]] = []
    pieces: list[dict[str, float]] = []
    ledger.rounds.append(done)
    ledger.cpu.append(cpu)
    ledger.pieces.append(pieces)
    for number in range(affordable):
        if number and deadline.left() < round_seconds / 2:
            return
        keys = list(subjects)
        order.shuffle(keys)
        seen: dict[str, list[Block]] = {}
        for key in [*keys, *reversed(keys)]:
            if key in subjects and (block := _block(key, subjects[key], steps[key], subjects, ledger)) is not None:
                seen.setdefault(key, []).append(block)
                ledger.blocks.setdefault(key, []).append(block.seconds_per_step)
                ledger.cpu_blocks.setdefault(key, []).append(block.cpu_per_step)
                ledger.queued_blocks.setdefault(key, []).append(block.queued / block.steps)
                ledger.samples_per_step[key] = block.samples / block.steps
                ledger.on_block(key, block.seconds_per_step)
        pairs = {key: pair for key, pair in seen.items() if len(pair) == 2}
        pieces.append({key: statistics.fmean(block.piece_per_step for block in pair) for key, pair in pairs.items()})
        cpu.append({key: statistics.fmean(max(b.cpu_per_step, 1e-9) for b in pair) for key, pair in pairs.items()})
        done.append({key: statistics.geometric_mean(b.seconds_per_step for b in pair) for key, pair in pairs.items()})


def _block(key: str, subject: Subject, steps: int, subjects: dict[str, Subject], ledger: Ledger) -> Block | None:
    try:
        return subject.block(steps)
    except TrialFailed as failure:
        ledger.failures[key] = str(failure)
        subject.close()
        del subjects[key]
        return None


def trial(ledger: Ledger, variant: Variant, peak_bytes: int | None = None, metric: str = "seconds_per_step") -> Trial:
    """What is known of one variant so far."""
    blocks = ledger.blocks.get(variant.key, [])
    if not blocks:
        failed = variant.key in ledger.failures
        return Trial(
            variant.knob,
            variant.settings,
            "failed" if failed else "not_measured",
            metric,
            peak_memory_bytes=peak_bytes,
            reason=ledger.failures.get(variant.key, "not reached"),
        )
    middle, low, high = quartiles(blocks)
    if metric == "samples_per_second":
        samples = ledger.samples_per_step.get(variant.key, 1.0)
        middle, low, high = samples / middle, samples / high, samples / low
    return Trial(
        variant.knob,
        variant.settings,
        "ok",
        metric,
        middle,
        low,
        high,
        len(blocks),
        peak_bytes,
        reason=ledger.failures.get(variant.key, ""),
        samples=tuple(blocks),
    )


def comparison(
    ledger: Ledger,
    base: Variant,
    candidate: Variant,
    generations: slice = slice(None),
    of_piece: bool = False,
    clock: ClockName = "wall",
) -> Comparison | None:
    """The candidate against the base over the given generations; None if no round holds both.

    of_piece: the step's ratio from the piece alone (see `Ledger.log_ratios_of_piece`).
    """
    if of_piece:
        groups = ledger.log_ratios_of_piece(base.key, candidate.key, generations)
    else:
        groups = ledger.log_ratios(base.key, candidate.key, generations, clock)
    n = sum(map(len, groups))
    if not n:
        return None
    try:
        centre, low, high = ratio_interval(groups)
    except TooFewRounds:
        centre = math.exp(statistics.median(value for group in groups for value in group))
        low, high = 0.0, math.inf
    word = verdict(low, high)
    return Comparison(candidate.knob, base.settings, candidate.settings, centre, low, high, word, n, clock)


def clock_for(ledger: Ledger, base: Variant, computes_alone: bool) -> ClockName:
    """Which clock a comparison with this base should trust, decided from the base alone so that no result is picked.

    The one on the wall is what the user waits for. Where the training computes on the CPU in its own process
    (`computes_alone`: no accelerator, no loader workers in any variant), others held the cores, and it waited for nothing
    else (no disk, no network), processor seconds resolve half the effect that wall seconds do.
    """
    if not computes_alone or base.key not in ledger.blocks:
        return "wall"
    wall, cpu, queued = (
        statistics.median(blocks[base.key]) for blocks in (ledger.blocks, ledger.cpu_blocks, ledger.queued_blocks)
    )
    return "cpu" if queued >= QUEUED * wall and cpu + queued >= EXPLAINED * wall else "wall"


def saving(ledger: Ledger, base: Variant, compared: Comparison) -> Saving:
    """A comparison as the share of the base's step that goes away."""
    blocks = (ledger.blocks if compared.clock == "wall" else ledger.cpu_blocks).get(base.key)
    per_step = (1 - compared.ratio) * statistics.median(blocks) if blocks else None
    return Saving("measured", 1 - compared.high, 1 - compared.low, per_step, clock=compared.clock)
