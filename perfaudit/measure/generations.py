"""Races variants in generations of fresh processes: the plan of rounds in random order and back, and how long blocks are."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from perfaudit.measure.clock import Deadline, WallClock
from perfaudit.measure.elsewhere import Nodes, Work, run_on
from perfaudit.measure.journal import Kept
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Block, Generation, Json, Ledger, Variant
from perfaudit.measure.runner import BLOCK_SECONDS, ENDS_EARLY, Processes, TooLarge
from perfaudit.measure.stats import LOOKS, Look

GENERATIONS = LOOKS[-1].generations  # of processes: two of identical code differ by up to 2.2 × what one pair predicts
ROUNDS = 3  # per generation, each variant twice a round
FEWEST_STEPS = 2
MOST_STEPS = 2000  # of a block
FAR_SLOWER = 4.0  # time per sample against the base, in each of two first blocks; pairs of identical code came to 1.6

Settled = Callable[[Ledger], set[str]]  # keys of variants on which no more measuring is needed


def measure(
    lab: ChildLab,
    variants: Sequence[Variant],
    ledger: Ledger,
    deadline: Deadline,
    seed: int,
    stage: str = "race",
    generations: int = GENERATIONS,
    rounds: int = ROUNDS,
    block_seconds: float = BLOCK_SECONDS,
    settled: Settled = lambda ledger: set(),
    memo: Kept | None = None,
    known: Mapping[str, float] | None = None,
    nodes: Nodes | None = None,
    looks: Sequence[Look] = LOOKS,
) -> None:
    """Measure variants interleaved, into the ledger, in several generations of fresh processes; the first is the base.

    Each round runs all variants in random order and then in the reverse order. A variant that fails leaves with its
    reason and the others go on; without the base there is nothing to go on for. `settled` is asked after each generation:
    variants it names are measured no more, and when all are, it ends. The deadline ends it between rounds, so that every
    variant has as many blocks; the first round of a generation is always made, but a generation is not begun where that
    would outlast the deadline, as far as the ledger knows what opening and a step take. A training that comes to its end, as
    a short script does, ends its generation, and in the next ones blocks are as short as that asks for.
    stage: under which name the ledger and the memo keep the generations. known: seconds per step by key; a variant of which
    they are known is given no block to find them out. nodes: on which all generations but the first are measured, several at once
    up to the next look; the first one is measured here, because the lab checks what it builds. None: all are. looks: after which
    `settled` names variants; time is shared out up to the next one.

    Where memory does not hold the variants side by side, each generation has one process after the other, in the reverse
    order every second time, and `Ledger.apart` says so. A drift of the machine is then between the variants and not within
    their rounds; verdicts rest on what generations differ by, so intervals are wider for it.
    """
    plan = GenerationPlan(tuple(variants), seed, stage, generations, rounds, block_seconds, known or {}, tuple(looks))
    run_on(nodes, [_Race(lab, plan, ledger, deadline, settled)], memo)


def affordable(ledger: Ledger, seconds: float, generations: int) -> int:
    """How many variants, the base among them, this time is enough for, with one round of the shortest blocks each."""
    least = generations * least_seconds(ledger)
    return int(seconds / least) if least else 1 << 30


def least_seconds(ledger: Ledger) -> float:
    """What a generation with one round of the shortest blocks takes a variant, as far as it is known."""
    return ledger.seconds_to_open + 3 * (FEWEST_STEPS + 1) * ledger.seconds_per_step


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What is measured in a race, and how, see `measure`: what a node needs to know of it besides its lab."""

    variants: tuple[Variant, ...]
    seed: int
    stage: str
    generations: int
    rounds: int
    block_seconds: float
    known: Mapping[str, float]
    looks: tuple[Look, ...] = LOOKS

    @property
    def base(self) -> str:
        """The key of the first variant, which the others are compared with."""
        return self.variants[0].key


@dataclass(slots=True)
class _Race:
    """A series of generations, see `measure`. number: of those begun; of those that were taken, where nodes measure. alive:
    variants of the next one.
    """

    lab: ChildLab
    plan: GenerationPlan
    ledger: Ledger
    deadline: Deadline
    settled: Settled
    number: int = 0
    alive: list[Variant] = field(default_factory=list)
    generation: Generation | None = None  # the last one, once it is open
    failed: int = 0  # variants, before the last one

    @property
    def stage(self) -> str:
        return self.plan.stage

    def is_open(self) -> bool:
        variants, base = self.plan.variants, self.plan.base
        if self.number == self.plan.generations or base in self.ledger.failures:
            return False
        done, failed = self.settled(self.ledger), self.ledger.failures
        self.alive = [v for v in variants if v.key not in failed and (v.key == base or v.key not in done)]
        return len(self.alive) >= min(2, len(variants))

    def has_time(self) -> bool:
        return self.deadline.seconds_left() > least_seconds(self.ledger) * len(self.alive)

    def work(self, ahead: int) -> Work | None:
        """None beyond the next look: that may settle variants."""
        number = self.number + ahead
        ends = [look.generations for look in self.plan.looks if look.generations > self.number]
        if not self.number or number >= min([*ends, self.plan.generations]):
            return None
        ledger = replace(self.ledger, generations=[], on_block=_silent)
        plan = replace(self.plan, variants=tuple(self.alive))
        return partial(measure_there, self.lab.here(), plan, number, ledger, self.deadline.seconds_left())

    def take(self, found: tuple[Generation | None, Json, float]) -> None:
        self.generation, state, self.ledger.seconds_per_step = found
        self.failed, self.number = len(self.ledger.failures), self.number + 1
        self.ledger.on_nodes += 1
        self.ledger.take(state)
        if self.generation is None:
            return
        if self.generation.rounds:
            self.ledger.generations.append(self.generation)
        for round_ in self.generation.rounds[-1:]:
            for key, (_, last) in round_.items():
                self.ledger.on_block(key, last.seconds_per_step)

    def recall(self, piece: Generation, state: Json) -> None:
        self.ledger.generations.append(piece)
        self.ledger.take(state)
        self.number += 1

    def set_to_keep(self) -> tuple[Generation, Json] | None:
        found, has_failed = self.generation, len(self.ledger.failures) > self.failed
        return (found, self.ledger.state()) if found is not None and (found.rounds or has_failed) else None

    def measure(self) -> None:
        number, self.number, self.generation = self.number, self.number + 1, None
        self.failed = len(self.ledger.failures)
        with Processes[Block](self.ledger) as there:
            self._run(there, number)

    def _run(self, there: Processes[Block], number: int) -> None:
        before, checked = self.deadline.seconds_left(), self.lab.seconds_checking
        if not self.ledger.apart:
            try:
                there.add(self.lab.open(self.alive))
            except TooLarge as why:
                self.ledger.apart = str(why)
        if self.ledger.apart:
            # A steady drift of the machine cancels over two generations.
            turn = self.alive[::-1] if number % 2 else self.alive
            self.generation = Generation(self.stage, self._one_after_the_other(there, turn))
            if self.generation.rounds:
                self.ledger.generations.append(self.generation)
            return
        self.generation = Generation(self.stage)
        self.ledger.seconds_to_open = self._seconds_of_opening(before, checked) / len(self.alive)
        if self.plan.base not in self.ledger.failures:  # else nothing is left to compare with
            self.ledger.generations.append(self.generation)
            self._side_by_side(there, self.generation, number)

    def _side_by_side(self, there: Processes[Block], generation: Generation, number: int) -> None:
        order = random.Random(f"{self.plan.seed} {self.stage} {number}")  # a resumed run draws what an unbroken one had
        # Each of those behind it will take as long to open as this one did.
        later = _generations_to_a_look(number, self.plan) - 1
        opening = later * self.ledger.seconds_to_open * len(self.alive)
        share = max(0.0, self.deadline.seconds_left() - opening) / (later + 1)
        per_step = self._seconds_per_step(there)
        steps = {key: self._steps(key, self.plan.block_seconds / seconds) for key, seconds in per_step.items()}
        # The first steps of each block are not timed.
        round_seconds = sum(2 * (n + self._steps_before(key)) * per_step[key] for key, n in steps.items())
        if round_seconds > share:  # a small budget makes shorter blocks rather than too few rounds for an interval
            steps = {key: self._steps(key, int(n * share / round_seconds)) for key, n in steps.items()}
        steps = {key: self._before_end(there, key, n) for key, n in steps.items()}
        for done in range(max(1, min(self.plan.rounds, int(share / max(round_seconds, 1e-9))))):
            if there.ended or (done and self.deadline.seconds_left() < round_seconds / 2):
                break
            keys = list(there.subjects)
            order.shuffle(keys)
            seen: dict[str, list[Block]] = {}
            for key in [*keys, *reversed(keys)]:
                if (
                    not there.ended
                    and key in there.subjects
                    and (block := self._block(there, key, steps[key])) is not None
                ):
                    seen.setdefault(key, []).append(block)
                    self.ledger.on_block(key, block.seconds_per_step)
            if not there.ended:
                generation.rounds.append({key: (pair[0], pair[1]) for key, pair in seen.items() if len(pair) == 2})
        self._note_ends(there)
        if there.ended and not generation.rounds and all(n == self._least(key) for key, n in steps.items()):
            for key in list(there.subjects):  # no shorter block is left to try
                there.fail(key, _too_few(self.ledger))

    def _seconds_per_step(self, there: Processes[Block]) -> dict[str, float]:
        """Of each variant, from a first block of it where they are not known. One that is far slower leaves."""
        per_step = {key: seconds for key in there.subjects if (seconds := self.plan.known.get(key))}
        base, base_key = None, ""  # the first subject's
        for key in list(there.subjects):
            if key not in per_step:
                first = self._block(there, key, self._least(key))
                if first is None:
                    continue
                if base is None:
                    base, base_key = first, key
                if _is_far_slower(
                    first, base
                ):  # once more, and the base too: others may have taken the cores meanwhile
                    again = self._block(there, key, self._least(key))
                    then = self._block(there, base_key, self._least(base_key)) or base
                    if again is not None and _is_far_slower(again, base) and _is_far_slower(again, then):
                        times = _per_sample(again) / _per_sample(then)
                        there.fail(key, f"not measured further: {times:.0f} times as slow in its first steps")
                    if key not in there.subjects:
                        continue
                per_step[key] = max(first.seconds_per_step, 1e-6)
            self.ledger.seconds_per_step = per_step[key]
        return per_step

    def _one_after_the_other(
        self, there: Processes[Block], turn: Sequence[Variant]
    ) -> list[dict[str, tuple[Block, Block]]]:
        """A generation of variants that do not fit beside each other: its rounds, which all have the base.

        [] where time was over before all had theirs, and where a training came to its end within blocks that can be shorter:
        those of the next generation are. The deadline is looked at before each variant; each gets an even share of what is left
        when the first one is opened.
        """
        seen: dict[str, list[Block]] = {}
        share = self.deadline.seconds_left() / len(turn)
        for variant in turn:
            key, before, checked = variant.key, self.deadline.seconds_left(), self.lab.seconds_checking
            if before <= 0:
                return []
            there.add(self.lab.open([variant]))
            if key not in there.subjects:
                continue
            opening = before - self.deadline.seconds_left()
            self.ledger.seconds_to_open = self._seconds_of_opening(before, checked)
            first = self._block(there, key, self._least(key))
            if first is not None:
                per_step = self.ledger.seconds_per_step = max(first.seconds_per_step, 1e-6)
                seconds = min(self.plan.block_seconds, max(0.0, share - opening) / (2 * self.plan.rounds))
                steps = self._before_end(there, key, self._steps(key, seconds / per_step))
                blocks: list[Block] = []
                while len(blocks) < 2 * self.plan.rounds and (block := self._block(there, key, steps)) is not None:
                    blocks.append(block)
                    self.ledger.on_block(key, block.seconds_per_step)
                if key in there.ended and steps > self._least(key):
                    return []
                if key in there.ended and len(blocks) < 2:
                    there.fail(key, _too_few(self.ledger))
                seen[key] = blocks
            self._note_ends(there)
            there.close()
        pairs = {
            key: [(blocks[2 * n], blocks[2 * n + 1]) for n in range(len(blocks) // 2)]
            for key, blocks in seen.items()
            if key not in self.ledger.failures
        }
        return [
            {key: both[n] for key, both in pairs.items() if n < len(both)}
            for n in range(len(pairs.get(self.plan.base, ())))
        ]

    def _seconds_of_opening(self, left: float, checked: float) -> float:
        """Since these seconds were left, without the checks since the lab had made so many seconds of them.

        A patch is checked in the first generation, and the later ones open faster.
        """
        return max(0.0, left - self.deadline.seconds_left() - (self.lab.seconds_checking - checked))

    def _note_ends(self, there: Processes[Block]) -> None:
        """A training that ends before anything of it was measured has failed."""
        for key, end in there.ended.items():
            if key in there.subjects and not there.made[key]:
                there.fail(key, f"{ENDS_EARLY}{end}")

    def _least(self, key: str) -> int:
        return next(max(FEWEST_STEPS, variant.least_steps) for variant in self.alive if variant.key == key)

    def _block(self, there: Processes[Block], key: str, steps: int) -> Block | None:
        return there.block(key, steps, self._steps_before(key))

    def _steps_before(self, key: str) -> int:
        return next(variant.untimed for variant in self.alive if variant.key == key)

    def _steps(self, key: str, steps: float) -> int:
        """Of a block, as many as wanted within what it may have."""
        return max(self._least(key), min(MOST_STEPS, round(steps)))

    def _before_end(self, there: Processes[Block], key: str, steps: int) -> int:
        """Steps of a block with which all rounds fit before the training ends; the first of each block are not timed."""
        if self.ledger.steps_to_end is None:
            return steps
        left = self.ledger.steps_to_end - there.made[key]
        return max(self._least(key), min(steps, left // (2 * self.plan.rounds) - self._steps_before(key)))


def measure_there(
    lab: ChildLab, plan: GenerationPlan, number: int, ledger: Ledger, left: float
) -> tuple[Generation | None, Json, float]:
    """Measure one generation on this node: what was seen, the ledger's state after it, and its seconds per step.

    ledger: without generations. left: seconds until the deadline.
    """
    race = _Race(lab, plan, ledger, Deadline(left, WallClock()), lambda ledger: set())
    race.number = number
    if race.is_open():
        race.measure()
    return race.generation, ledger.state(), ledger.seconds_per_step


def _silent(key: str, seconds: float) -> None:
    """Nobody watches on a node."""


def _generations_to_a_look(number: int, plan: GenerationPlan) -> int:
    """How many generations, this one with them, are wanted before the data can next be judged."""
    ends = [look.generations for look in plan.looks if number < look.generations <= plan.generations]
    return (ends[0] if ends else plan.generations) - number


def _too_few(ledger: Ledger) -> str:
    return f"its training ends after {ledger.steps_to_end} steps of a race, too few for one"


def _is_far_slower(block: Block, base: Block) -> bool:
    return _per_sample(block) > FAR_SLOWER * _per_sample(base)


def _per_sample(block: Block) -> float:
    """Waiting for cores that others held left out, where that can be told."""
    return block.own_per_step * block.steps / max(1, block.samples)
