"""Times two versions of a training side by side, in pairs of fresh processes. Knows no torch; the lab knows processes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfaudit.gate.decision import LIMIT, LOOKS, PAIRS, TOLERATED, is_settled
from perfaudit.gate.pair_lab import PairLab
from perfaudit.gate.records import ORDERS, Pair, Quad, Side, TargetRecord, TimedBlock, Typical
from perfaudit.measure.clock import Clock, Deadline, WallClock
from perfaudit.measure.environment import load_average
from perfaudit.measure.nursery import START_SECONDS
from perfaudit.measure.runner import BLOCK_SECONDS, TrialFailed
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target

SIDE_SECONDS = 3.0  # of steps, on each side of a pair; more tells little, because pairs differ by more than it resolves
FEWEST_STEPS = 3  # of a block: its median leaves one hiccup out
MOST_STEPS = 2000
# Of a pair, where blocks of FEWEST_STEPS leave time for them. Even, so that each side begins equally often. With four, the
# first look has 16 quads; the signed-rank test cannot call anything at its error, 0.002, from fewer than 9.
QUADS, FEWEST_QUADS = 4, 2

SIDES: tuple[Side, Side] = ("base", "head")


class Subject(Protocol):
    """One side of a pair: set up, warm and standing still. seconds_per_step: as it took when it was warmed up."""

    seconds_per_step: float

    def block(self, side: Side, steps: int) -> TimedBlock:
        """Run one step that is not timed and time so many; everything else stands still. Raises TrialFailed."""

    def close(self) -> None: ...


class Lab(Protocol):
    """Sets both sides of a target up; targets go by their number."""

    def open(self, number: int, first: Side, seed: int) -> Mapping[Side, Subject | TrialFailed]:
        """Both sides in fresh processes, warmed up, `first` started first; a failure in place of a subject."""

    def typical(self, number: int) -> Typical:
        """What a block of a target that was opened counts as: see `records.TargetRecord`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pair is made of: so many quads, with blocks of so many timed steps."""

    quads: int
    steps: int


def planned(seconds_per_step: float, seconds: float) -> Plan:
    """The pair for a time, both sides together: blocks of BLOCK_SECONDS, shorter ones where that is not enough time.

    A pair of slow steps takes longer than asked for, and the budget ends after fewer pairs. One step of each block is not
    timed.
    """
    seconds = min(seconds, 2 * SIDE_SECONDS)
    wanted = min(MOST_STEPS, max(FEWEST_STEPS, round(BLOCK_SECONDS / seconds_per_step)))
    for quads in (QUADS, FEWEST_QUADS):
        steps = min(wanted, int(seconds / (4 * quads * seconds_per_step)) - 1)
        if steps >= FEWEST_STEPS:
            return Plan(quads, steps)
    return Plan(FEWEST_QUADS, FEWEST_STEPS)


def time_pairs(
    lab: Lab,
    records: Sequence[TargetRecord],
    deadline: Deadline,
    limit: float = LIMIT,
    tolerated: float = TOLERATED,
    seed: int = 0,
    watch: Watch | None = None,
) -> None:
    """Measure every target into its record, pair by pair and in turn, until each is settled or has failed.

    The deadline ends it between quads. A pair is not begun where opening it and its shortest quad would outlast the
    deadline, as far as earlier pairs tell. Both sides of a pair get the same seed and see the same batches.
    Whatever interrupts it, processes are closed and the records keep what was measured.
    """
    watch = watch or Watch()
    pace = _Pace(deadline)
    try:
        while turn := [number for number, record in enumerate(records) if pace.allows(record)]:
            for number in turn:
                record = records[number]
                if pace.allows(record):  # still
                    _pair(lab, number, record, pace.seconds(records), deadline, seed, watch)
                    record.settled = is_settled(record, limit, tolerated, len(records))
    finally:
        for record in records:
            record.load = load_average()


@dataclass(frozen=True, slots=True)
class _Pace:
    """Shares the time that is left out among the pairs to come."""

    deadline: Deadline

    def allows(self, record: TargetRecord) -> bool:
        """Whether another pair of this target is wanted, and would come to a quad in time."""
        if not self._to_come(record, PAIRS):
            return False
        quad = _quad_seconds(FEWEST_STEPS, record.seconds_per_step("base") or 0.0)
        return self.deadline.left() > _opening(record) + quad

    def seconds(self, records: Sequence[TargetRecord]) -> float:
        """Seconds of steps that the next pair may take, so that all targets come to as late a look as they can.

        That is the last one for which opening takes no more than half of the time that is left: what is spent on opening
        measures nothing.
        """
        for look in reversed(LOOKS):
            to_come = [self._to_come(record, look.generations) for record in records]
            opening = sum(n * _opening(record) for n, record in zip(to_come, records, strict=True))
            if sum(to_come) and opening <= self.deadline.left() / 2:
                return (self.deadline.left() - opening) / sum(to_come)
        return 0.0

    def _to_come(self, record: TargetRecord, pairs: int) -> int:
        return 0 if record.settled or record.failures else max(0, pairs - len(record.pairs))


def _opening(record: TargetRecord) -> float:
    """Seconds until a pair of this target is warm; of the last one, because the first one loads files from the disk."""
    return record.pairs[-1].opening if record.pairs else 0.0


def _pair(
    lab: Lab, number: int, record: TargetRecord, seconds: float, deadline: Deadline, seed: int, watch: Watch
) -> None:
    """One more pair of target `number`, into its record; `seconds` of steps, both sides together."""
    done = len(record.pairs)
    draw = random.Random(f"{seed} {number} {done}")
    pair = Pair(draw.choice(SIDES), seed + done)
    before = deadline.left()
    opened = lab.open(number, pair.first, pair.seed)
    pair.opening = before - deadline.left()
    subjects = {side: item for side, item in opened.items() if not isinstance(item, TrialFailed)}
    try:
        for side, item in opened.items():
            if isinstance(item, TrialFailed):
                record.failures[side] = _why(item, done)
        if record.failures:
            return
        record.typical = lab.typical(number)
        record.pairs.append(pair)
        known = record.seconds_per_step("base") or min(subject.seconds_per_step for subject in subjects.values())
        plan = planned(max(known, 1e-6), seconds)
        _quads(record, pair, subjects, plan, deadline, draw.randrange(2), watch)
    finally:
        for subject in subjects.values():
            subject.close()


def _quads(
    record: TargetRecord,
    pair: Pair,
    subjects: dict[Side, Subject],
    plan: Plan,
    deadline: Deadline,
    start: int,
    watch: Watch,
) -> None:
    """Quads of a pair, ABBA and BAAB in turn: so each side follows its own block, which is faster then, equally often."""
    for number in range(plan.quads):
        if number and deadline.left() <= 0:
            return
        blocks: list[TimedBlock] = []
        for side in ORDERS[(start + number) % 2]:
            try:
                blocks.append(subjects[side].block(side, plan.steps))
            except TrialFailed as failure:
                record.failures[side] = _why(failure, len(record.pairs) - 1)
                return
            watch.block({"target": record.target, "side": side}, blocks[-1].seconds(record.typical))
        pair.quads.append(Quad(tuple(blocks)))


def _why(failure: TrialFailed, done: int) -> str:
    return f"{failure} (in process pair {done + 1}, after it had run)" if done else str(failure)


def _quad_seconds(steps: int, seconds_per_step: float) -> float:
    return 4 * (steps + 1) * seconds_per_step


def time_targets(
    targets: Sequence[Target],
    base_folder: Path,
    records: list[TargetRecord],
    budget: float,
    limit: float = LIMIT,
    tolerated: float = TOLERATED,
    device: str = "auto",
    timeout: float = START_SECONDS,
    relocated: tuple[str, str] | None = None,
    reference: str = "",
    seed: int = 0,
    watch: Watch | None = None,
    clock: Clock | None = None,
) -> None:
    """Measure targets as they are here against those in base_folder, in child processes, for `budget` seconds.

    records: the caller's, one for each target in their order, or none, and then it gets them; `decision.judged_together`
    says what they mean. reference: what the base is called in messages. The rest: see `pair_lab.PairLab`, `time_pairs`.
    """
    records += [TargetRecord(str(target), reference) for target in targets[len(records) :]]
    deadline = Deadline(budget, clock or WallClock())
    lab = PairLab(targets, base_folder, device, timeout, relocated)
    time_pairs(lab, records, deadline, limit, tolerated, seed, watch)
