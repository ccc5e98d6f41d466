"""Interleaved measuring of variants: who runs when, how long, when it is enough. Knows no torch and no process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from perfaudit.measure.clock import Deadline
from perfaudit.measure.ledger import Block, Generation, Json, Ledger, Variant
from perfaudit.measure.stats import LOOKS

BLOCK_SECONDS = 0.35  # long against a timer tick and a scheduler slice, short against drift of the machine
GENERATIONS = LOOKS[-1].generations  # of processes: two of identical code differ by up to 2.2 × what one pair predicts
ROUNDS = 3  # per generation, each variant twice a round
FEWEST_STEPS = 2
FAR_SLOWER = 4.0  # time per sample against the base, in each of two first blocks; pairs of identical code came to 1.6


class Subject(Protocol):
    """A variant that is set up and warm."""

    def block(self, steps: int) -> Block:
        """Run and time so many steps, and one before them that is not timed; everything else stands still.

        Raises TrialFailed, of which TrialEnded says that the training has no further step.
        """

    def close(self) -> None: ...


class Lab(Protocol):
    """Sets variants up. Raising TrialFailed says why one cannot be measured."""

    def open(self, variants: Sequence[Variant]) -> dict[str, Subject | TrialFailed]:
        """All these variants side by side, warmed up; a failure in place of a subject.

        Raises TooLarge where memory does not hold them side by side; a single one is opened without a question.
        """

    def examine(self, variant: Variant) -> str:
        """Set a variant up, check it, and let it go; why it is refused, "" if it is not."""


class TrialFailed(Exception):
    """A variant that cannot be measured, and why: the message is a result."""


class TrialEnded(TrialFailed):
    """A variant whose training has come to its end, as a short script does: no fault of it, and no further step."""


class TooLarge(Exception):
    """Variants that do not fit into memory beside each other: one is measured after the other. The message says why."""


class Memo:
    """What earlier runs measured, and where to note what this one does. This one remembers nothing."""

    def recorded(self, stage: str) -> list[tuple[Generation, Json]]:
        """Generations of this stage that need not be run again, in their order, each with the ledger's state after it."""
        return []

    def finished(self, generation: Generation, state: Json) -> None:
        """One more generation was run; state: the ledger's after it."""


Settled = Callable[[Ledger], set[str]]  # keys of variants on which no more measuring is needed


def measure(
    lab: Lab,
    variants: Sequence[Variant],
    ledger: Ledger,
    deadline: Deadline,
    seed: int,
    stage: str = "race",
    generations: int = GENERATIONS,
    rounds: int = ROUNDS,
    block_seconds: float = BLOCK_SECONDS,
    settled: Settled = lambda ledger: set(),
    memo: Memo | None = None,
    known: Mapping[str, float] | None = None,
) -> None:
    """Measure variants interleaved, into the ledger, in several generations of fresh processes; the first is the base.

    Each round runs all variants in random order and then in the reverse order. A variant that fails leaves with its
    reason and the others go on; without the base there is nothing to go on for. `settled` is asked after each generation:
    variants it names are measured no more, and when all are, it ends. The deadline ends it between rounds, so that every
    variant has as many blocks; the first round of a generation is always made, but a generation is not begun where that
    would outlast the deadline, as far as the ledger knows what opening and a step take. A training that comes to its end, as
    a short script does, ends its generation, and in the next ones blocks are as short as that asks for.
    stage: under which name the ledger and the memo keep the generations. known: seconds per step by key; a variant of which
    they are known is given no block to find them out.

    Where memory does not hold the variants side by side, each generation has one process after the other, in the reverse
    order every second time, and `Ledger.apart` says so. A drift of the machine is then between the variants and not within
    their rounds; verdicts rest on what generations differ by, so intervals are wider for it.
    """
    memo = memo or Memo()
    recorded = memo.recorded(stage)
    base = variants[0].key
    for number in range(generations):
        done = settled(ledger)
        alive = [v for v in variants if v.key not in ledger.failures and (v.key == base or v.key not in done)]
        if len(alive) < min(2, len(variants)):
            return
        order = random.Random(f"{seed} {stage} {number}")  # a resumed run draws the orders that an unbroken one had
        if recorded:
            earlier, state = recorded.pop(0)
            ledger.generations.append(earlier)
            ledger.take(state)
            continue
        if deadline.left() <= least_seconds(ledger) * len(alive):
            return  # it would be over before the first round is
        before = deadline.left()
        least = {v.key: max(FEWEST_STEPS, v.least_steps) for v in alive}
        opened: dict[str, Subject | TrialFailed] = {}
        if not ledger.apart:
            try:
                opened = lab.open(alive)
            except TooLarge as why:
                ledger.apart = str(why)
        if ledger.apart:
            # A steady drift of the machine cancels over two generations.
            turn = alive[::-1] if number % 2 else alive
            generation = Generation(stage)
            rounds_seen = _one_after_the_other(lab, turn, base, least, ledger, deadline, rounds, block_seconds)
            generation.rounds += rounds_seen
            if rounds_seen:
                ledger.generations.append(generation)
            if rounds_seen or ledger.failures:
                memo.finished(generation, ledger.state())
            if base in ledger.failures:
                return
            continue
        ledger.seconds_to_open = (before - deadline.left()) / len(alive)
        there = _Opened(ledger)
        for key, item in opened.items():
            if isinstance(item, TrialFailed):
                ledger.failures[key] = str(item)
            else:
                there.subjects[key] = item
        generation = Generation(stage)
        try:
            if base in ledger.failures:  # nothing left to compare with
                return
            later = _generations_to_a_look(number, generations) - 1  # each will take as long to open as this one did
            share = max(0.0, deadline.left() - later * ledger.seconds_to_open * len(alive)) / (later + 1)
            ledger.generations.append(generation)
            _generation(generation, there, least, deadline, order, rounds, block_seconds, share, known or {})
        finally:
            there.close()
            if generation.rounds or ledger.failures:
                memo.finished(generation, ledger.state())


def _one_after_the_other(
    lab: Lab,
    turn: Sequence[Variant],
    base: str,
    least: dict[str, int],
    ledger: Ledger,
    deadline: Deadline,
    rounds: int,
    block_seconds: float,
) -> list[dict[str, tuple[Block, Block]]]:
    """A generation of variants that do not fit beside each other: its rounds, which all have the base.

    [] where time was over before all had theirs, and where a training came to its end within blocks that can be shorter: those of
    the next generation are. The deadline is looked at before each variant; each gets an even share of what is left when the first
    one is opened.
    """
    seen: dict[str, list[Block]] = {}
    share = deadline.left() / len(turn)
    for variant in turn:
        key, before = variant.key, deadline.left()
        if before <= 0:
            return []
        item = lab.open([variant])[key]
        if isinstance(item, TrialFailed):
            ledger.failures[key] = str(item)
            continue
        there = _Opened(ledger, {key: item})
        try:
            ledger.seconds_to_open = before - deadline.left()
            first = there.block(key, least[key])
            if first is None:
                continue
            per_step = ledger.seconds_per_step = max(first.seconds_per_step, 1e-6)
            seconds = min(block_seconds, max(0.0, share - ledger.seconds_to_open) / (2 * rounds))
            steps = max(least[key], min(2000, round(seconds / per_step)))
            if ledger.steps_to_end is not None:
                steps = max(least[key], min(steps, _before_end(there, key, rounds)))
            blocks: list[Block] = []
            while len(blocks) < 2 * rounds and (block := there.block(key, steps)) is not None:
                blocks.append(block)
                ledger.on_block(key, block.seconds_per_step)
            if there.is_over and steps > least[key]:
                return []
            if there.is_over and len(blocks) < 2:
                there.fail(key, _too_few(ledger))
        finally:
            there.close()
        if key not in ledger.failures:
            seen[key] = blocks
    pairs = {key: [(blocks[2 * n], blocks[2 * n + 1]) for n in range(len(blocks) // 2)] for key, blocks in seen.items()}
    return [{key: both[n] for key, both in pairs.items() if n < len(both)} for n in range(len(pairs.get(base, ())))]


def affordable(ledger: Ledger, seconds: float, generations: int) -> int:
    """How many variants, the base among them, this time is enough for, with one round of the shortest blocks each."""
    least = generations * least_seconds(ledger)
    return int(seconds / least) if least else 1 << 30


def least_seconds(ledger: Ledger) -> float:
    """What a generation with one round of the shortest blocks takes a variant, as far as it is known."""
    return ledger.seconds_to_open + 3 * (FEWEST_STEPS + 1) * ledger.seconds_per_step


def _generations_to_a_look(number: int, generations: int) -> int:
    """How many generations, this one with them, are wanted before the data can next be judged."""
    ends = [look.generations for look in LOOKS if number < look.generations <= generations]
    return (ends[0] if ends else generations) - number


@dataclass(slots=True)
class _Opened:
    """Subjects of one generation that are still there. made: their steps, by key. is_over: a training came to its end."""

    ledger: Ledger
    subjects: dict[str, Subject] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)
    is_over: bool = False

    def block(self, key: str, steps: int) -> Block | None:
        """A block of a subject; None where it fails, which closes it, or has come to its end, which ends the generation."""
        try:
            block = self.subjects[key].block(steps)
        except TrialEnded as end:
            self.is_over = True
            if not self.made[key]:
                self.fail(key, str(end))
            known, made = self.ledger.steps_to_end, self.made[key]
            is_shorter = known is not None and made + 1 + steps <= known  # a larger batch makes fewer steps of an epoch
            self.ledger.steps_to_end = made if known is None or is_shorter else max(known, made)
            return None
        except TrialFailed as failure:
            self.fail(key, str(failure))
            return None
        self.made[key] += 1 + steps
        return block

    def fail(self, key: str, why: str) -> None:
        """Close a subject, and keep the reason."""
        self.ledger.failures[key] = why
        self.subjects.pop(key).close()

    def close(self) -> None:
        for subject in self.subjects.values():
            subject.close()


def _generation(
    generation: Generation,
    there: _Opened,
    least: dict[str, int],
    deadline: Deadline,
    order: random.Random,
    rounds: int,
    block_seconds: float,
    share: float,
    known: Mapping[str, float],
) -> None:
    ledger = there.ledger
    per_step = {key: seconds for key in there.subjects if (seconds := known.get(key))}
    steps = {key: max(least[key], min(2000, round(block_seconds / seconds))) for key, seconds in per_step.items()}
    base: Block | None = None  # the first subject's
    for key in list(there.subjects):  # calibration: how many steps make a block
        if key in steps:
            ledger.seconds_per_step = per_step[key]
            continue
        first = there.block(key, least[key])
        if first is None:
            continue
        if base is None:
            base = first
        elif _is_far_slower(first, base):  # once more: a hiccup hits one block
            again = there.block(key, least[key])
            if again is not None and _is_far_slower(again, base):
                _leave(key, there, first, base)
            if key not in there.subjects:
                continue
        per_step[key] = ledger.seconds_per_step = max(first.seconds_per_step, 1e-6)
        steps[key] = max(least[key], min(2000, round(block_seconds / per_step[key])))
    round_seconds = _round_seconds(steps, per_step)
    if round_seconds > share:  # a small budget makes shorter blocks rather than too few rounds for an interval
        steps = {key: max(least[key], int(n * share / round_seconds)) for key, n in steps.items()}
    if ledger.steps_to_end is not None:
        steps = {key: max(least[key], min(n, _before_end(there, key, rounds))) for key, n in steps.items()}
    affordable = max(1, min(rounds, int(share / max(round_seconds, 1e-9))))
    for number in range(affordable):
        if there.is_over or (number and deadline.left() < round_seconds / 2):
            break
        keys = list(there.subjects)
        order.shuffle(keys)
        seen: dict[str, list[Block]] = {}
        for key in [*keys, *reversed(keys)]:
            if there.is_over:
                break
            if key in there.subjects and (block := there.block(key, steps[key])) is not None:
                seen.setdefault(key, []).append(block)
                ledger.on_block(key, block.seconds_per_step)
        if not there.is_over:
            generation.rounds.append({key: (pair[0], pair[1]) for key, pair in seen.items() if len(pair) == 2})
    if there.is_over and not generation.rounds and all(n == least[key] for key, n in steps.items()):
        for key in list(there.subjects):  # no shorter block is left to try
            there.fail(key, _too_few(ledger))


def _too_few(ledger: Ledger) -> str:
    return f"its training ends after {ledger.steps_to_end} steps of a race, too few for one"


def _before_end(there: _Opened, key: str, rounds: int) -> int:
    """Steps of a block with which so many rounds fit before the training ends; one step of each block is not timed."""
    left = (there.ledger.steps_to_end or 0) - there.made[key]
    return left // (2 * rounds) - 1


def _is_far_slower(block: Block, base: Block) -> bool:
    return _per_sample(block) > FAR_SLOWER * _per_sample(base)


def _per_sample(block: Block) -> float:
    return block.seconds_per_step * block.steps / max(1, block.samples)


def _leave(key: str, there: _Opened, seen: Block, base: Block) -> None:
    """Measure this variant no more: whatever the noise, it is not going to win."""
    times = _per_sample(seen) / _per_sample(base)
    there.ledger.failures[key] = f"not measured further: {times:.0f} times as slow in its first steps"
    there.subjects.pop(key).close()


def _round_seconds(steps: dict[str, int], per_step: dict[str, float]) -> float:
    """Seconds of a round with so many timed steps a block; one step of each block is not timed."""
    return sum(2 * (n + 1) * per_step[key] for key, n in steps.items())
