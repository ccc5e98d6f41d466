"""Times two versions of a training in pairs of fresh processes, or in one training. Knows no torch; labs know processes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from perfaudit.gate.checkout import Checkout
from perfaudit.gate.decision import LIMIT, LOOKS, PAIRS, TOLERATED, is_settled
from perfaudit.gate.one_lab import ChildOneLab
from perfaudit.gate.one_on_nodes import time_in_one_training_on
from perfaudit.gate.one_training import IN_ONE, time_in_one_training
from perfaudit.gate.pair_lab import Built, PairLab
from perfaudit.gate.pair_plan import SHORTEST, Plan, drawn_seed, first_side_and_order, plan_pair, shorten_plan
from perfaudit.gate.records import (
    SIDES,
    Pair,
    Quad,
    Side,
    TargetRecord,
    TimedBlock,
    pair_from_json,
    pair_to_json,
)
from perfaudit.machine.limits import load_average
from perfaudit.measure.clock import Clock, Deadline, WallClock
from perfaudit.measure.elsewhere import Nodes, Work, run_on
from perfaudit.measure.facts import Facts
from perfaudit.measure.journal import Journal, Kept
from perfaudit.measure.ledger import Json
from perfaudit.measure.nursery import START_SECONDS
from perfaudit.measure.runner import Processes, TrialFailed
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target


def time_pairs(
    lab: PairLab,
    records: Sequence[TargetRecord],
    deadline: Deadline,
    limit: float = LIMIT,
    tolerated: float = TOLERATED,
    seed: int | None = None,
    watch: Watch | None = None,
    memo: Kept | None = None,
    nodes: Nodes | None = None,
) -> None:
    """Measure every target into its record, pair by pair and in turn, until each is settled or has failed.

    nodes: on which pairs are measured, several at once; None for this machine, where one is at a time.

    A quad is not begun where it would outlast the deadline, nor a pair where opening it and its shortest quad would, as far
    as earlier pairs tell. The first pair of a target is always opened while there is time; building and warming it up is
    bounded by the lab's timeout, outside the budget. seed: of the first pair, each pair adds one; drawn for each gate, so
    that two gates of the same code are independent, unless it is given. Both sides of a pair get the same seed and see the
    same batches. Whatever interrupts it, processes are closed and the records keep what was measured.
    """
    seed = drawn_seed() if seed is None else seed
    for record in records:
        record.seed = seed

    def settle(record: TargetRecord) -> None:
        record.settled = is_settled(record, limit, tolerated, len(records))

    pace, watch = _Pace(deadline, nodes), watch or Watch()
    try:
        every = [_Pairs(lab, number, records, pace, seed, watch, settle) for number in range(len(records))]
        run_on(nodes, every, memo)
    except BaseException:
        mark_interrupted(records)
        raise
    finally:
        for record in records:
            record.load = load_average()


def mark_interrupted(records: Sequence[TargetRecord]) -> None:
    """Say of targets that no look has settled that neither data nor budget ended their measuring."""
    for record in records:
        record.interrupted = not record.settled


@dataclass(frozen=True, slots=True)
class _Pace:
    """Shares the time that is left out among the pairs to come. nodes: that measure at once, None for this machine alone."""

    deadline: Deadline
    nodes: Nodes | None = None

    def allows(self, record: TargetRecord) -> bool:
        """Whether another pair of this target is wanted, and would come to a quad in time."""
        if not self.to_come(record, PAIRS):
            return False
        shortest = SHORTEST[record.length].quad_seconds(_step_seconds(record) or 0.0)
        if record.pairs and not record.groups():
            shortest = record.pairs[-1].quad_seconds  # that one did not fit
        return self.deadline.seconds_left() > _opening(record) + shortest

    def seconds(self, records: Sequence[TargetRecord]) -> float:
        """Seconds of steps that the next pair may take, so that all targets come to as late a look as they can.

        That is the last one for which opening takes no more than half of the time that is left: what is spent on opening
        measures nothing. Where there is none, it is the first look, and after that as many pairs as leave half of the time.
        """
        left = self.deadline.seconds_left() * (self.nodes.width if self.nodes is not None else 1)
        for look in reversed(LOOKS):
            to_come = [self.to_come(record, look.generations) for record in records]
            opening = sum(n * _opening(record) for n, record in zip(to_come, records, strict=True))
            if sum(to_come) and opening <= left / 2:
                return (left - opening) / sum(to_come)
        to_come = [self.to_come(record, LOOKS[0].generations) for record in records]
        if not sum(to_come):
            rest = [record for record in records if self.to_come(record, PAIRS)]
            turns = max(1, int(left / 2 / sum(_opening(record) for record in rest)))
            to_come = [turns if record in rest else 0 for record in records]
        opening = sum(n * _opening(record) for n, record in zip(to_come, records, strict=True))
        return max(0.0, (left - opening) / sum(to_come))

    def to_come(self, record: TargetRecord, pairs: int) -> int:
        """How many pairs of this target are wanted until there are so many."""
        is_done = record.settled or record.failures or record.one is not None
        return 0 if is_done else max(0, pairs - len(record.pairs))


def _opening(record: TargetRecord) -> float:
    """Seconds until a pair of this target is warm; of the last one, because the first one loads files from the disk."""
    return record.pairs[-1].opening if record.pairs else 0.0


@dataclass(slots=True)
class _Pairs:
    """The series of pairs of target `number`, see `time_pairs`. settle: asks the judge, and keeps its word.

    earlier: pairs that were measured before and are not in the record, which is so on a node.
    """

    lab: PairLab
    number: int
    records: Sequence[TargetRecord]
    pace: _Pace
    seed: int
    watch: Watch
    settle: Callable[[TargetRecord], None]
    done: int = 0  # pairs before the last one
    pair: Pair = field(default_factory=lambda: Pair("base", 0))  # the last one
    earlier: int = 0

    @property
    def record(self) -> TargetRecord:
        return self.records[self.number]

    @property
    def stage(self) -> str:
        return self.record.target

    def is_open(self) -> bool:
        return self.pace.to_come(self.record, PAIRS) > 0

    def has_time(self) -> bool:
        return self.pace.allows(self.record)

    def measure(self) -> None:
        with Processes[TimedBlock](self.record, self._why) as there:
            self._pair(there)
        self.settle(self.record)

    def _pair(self, there: Processes[TimedBlock]) -> None:
        record, deadline = self.record, self.pace.deadline
        record.is_begun, self.done = True, self.earlier + len(record.pairs)
        first, start = first_side_and_order(self.seed, self.number, self.done)
        pair = self.pair = Pair(first, self.seed + self.done)
        before, seconds = deadline.seconds_left(), self.pace.seconds(self.records)  # of steps, both sides together
        opened = self.lab.open(self.number, pair.first, pair.seed, before)
        pair.opening = before - deadline.seconds_left()
        there.add(opened)
        if record.failures:
            return
        record.typical, record.length = self.lab.typical(self.number), self.lab.length(self.number)
        record.pairs.append(pair)
        warm = [one.seconds_per_step for one in opened.values() if not isinstance(one, TrialFailed)]
        known = _step_seconds(record) or statistics.fmean(warm)
        plan = plan_pair(max(known, 1e-6), min(seconds, deadline.seconds_left()), record.length)
        if record.steps_to_end is not None:
            plan = shorten_plan(plan, record.steps_to_end)
        pair.quad_seconds = plan.quad_seconds(known)
        self._quads(there, pair, plan, start)

    def _quads(self, there: Processes[TimedBlock], pair: Pair, plan: Plan, start: int) -> None:
        """Quads of a pair, as far as they fit before the deadline, and before the training's end.

        An end before anything was measured is a failure.
        """
        record, deadline, expected = self.record, self.pace.deadline, pair.quad_seconds
        for number in range(plan.quads):
            left = deadline.seconds_left()
            if left < expected or there.ended:
                return
            blocks = there.blocks(plan.order(start, number), plan.steps, plan.untimed)
            if record.failures:
                return
            expected = left - deadline.seconds_left()
            if whole := blocks[: len(blocks) // 4 * 4]:
                pair.quads.append(Quad(tuple(whole)))
                self._show(whole)
            for side in SIDES:
                if side in there.ended and not record.groups():
                    there.fail(side, self._why(there.ended[side]))

    def work(self, ahead: int) -> Work | None:
        """None beyond the next look: that may settle the target."""
        number, record = len(self.record.pairs) + ahead, self.record
        if number >= next((look.generations for look in LOOKS if look.generations > len(record.pairs)), PAIRS):
            return None
        record.is_begun = True
        seconds, left = self.pace.seconds(self.records), self.pace.deadline.seconds_left()
        last = replace(record, pairs=record.pairs[-1:])
        return partial(measure_there, self.lab.here(), self.number, last, number, self.seed, seconds, left)

    def take(self, found: PairThere) -> None:
        record, self.pair, self.done = self.record, found.pair, len(self.record.pairs)
        record.take(found.state)
        record.pairs += [found.pair] if found.was_open else []
        self.lab.take(found.built, record)
        self._show([block for quad in found.pair.quads for block in quad.blocks])
        self.settle(record)

    def _show(self, blocks: Sequence[TimedBlock]) -> None:
        """Tell who watches what a step of each side took in these blocks."""
        for side, name in (("base", "reference"), ("head", "head")):
            if seconds := [block.seconds(self.record.typical) for block in blocks if block.side == side]:
                self.watch.block(f"{self.record.target}, {name}", statistics.median(seconds))

    def recall(self, piece: Pair, state: Json) -> None:
        self.record.pairs += [piece] if piece.quads else []
        self.record.take(state)
        self.settle(self.record)

    def set_to_keep(self) -> tuple[Pair, Json] | None:
        # What fails before a pair is finished is not kept, so that a resumed gate tries it again.
        fails_later = bool(self.record.failures and self.record.groups())
        return (self.pair, self.record.state()) if self.pair.quads or fails_later else None

    def _why(self, failure: TrialFailed) -> str:
        return f"{failure} (in process pair {self.done + 1}, after it had run)" if self.done else str(failure)


@dataclass(frozen=True, slots=True)
class PairThere:
    """A pair that was measured on a node. was_open: both sides of it were built. built: see `PairLab.take`."""

    pair: Pair
    state: Json
    was_open: bool
    built: Built


@dataclass(frozen=True, slots=True)
class _Given(_Pace):
    """The seconds of steps that a pair may take were found where the records are."""

    steps: float = 0.0

    def seconds(self, records: Sequence[TargetRecord]) -> float:
        return self.steps


def measure_there(
    lab: Callable[[], PairLab], number: int, record: TargetRecord, pair: int, seed: int, seconds: float, left: float
) -> PairThere:
    """Measure pair `pair` of target `number` on this node.

    record: with its last pair. seconds: of steps. left: seconds until the deadline.
    """
    known, there = len(record.pairs), lab()
    pace = _Given(Deadline(left, WallClock()), None, seconds)
    series = _Pairs(there, number, [record] * (number + 1), pace, seed, Watch(), lambda record: None)
    series.earlier = pair - known
    series.measure()
    return PairThere(series.pair, record.state(), len(record.pairs) > known, there.facts_and_digests())


def _step_seconds(record: TargetRecord) -> float | None:
    """Seconds of a step, as the mean of both sides; None before the first quad."""
    known = [record.seconds_per_step(side) for side in SIDES]
    return statistics.fmean(seconds for seconds in known if seconds) if any(known) else None


def time_targets(
    targets: Sequence[Target],
    base: Checkout | None,
    records: list[TargetRecord],
    budget: float,
    limit: float = LIMIT,
    tolerated: float = TOLERATED,
    device: str = "auto",
    timeout: float = START_SECONDS,
    reference: str = "",
    seed: int | None = None,
    watch: Watch | None = None,
    clock: Clock | None = None,
    facts: dict[tuple[int, Side], Facts] | None = None,
    former: Mapping[str, str] | None = None,
    in_one: bool = True,
    journal: Journal | None = None,
    nodes: Nodes | None = None,
) -> None:
    """Measure targets as they are here against those in `base`, in child processes, for `budget` seconds.

    Building and warming up a pair ends by `timeout`, not by the budget, which may therefore be outlasted by that.

    records: the caller's, one for each target in their order, or none, and then it gets them; `decision.judged_together`
    says what they mean. reference: what the base is called in messages. facts: gets those of what was built, by the
    number of the target and the side. former: by the label of a target, what its file is called in `base`, where that is
    not the same. in_one: compare them in one training where that can be. journal: keeps pairs, and races in one that came
    to their end; those of an earlier session are not measured again. nodes: that measure instead of this machine, each in a
    folder of this name that holds the same files. The rest: see `pair_lab.PairLab`, `time_pairs`.
    """
    watch = watch or Watch()
    journal = journal or Journal.none()
    seed = journal.start.get("seed", drawn_seed()) if seed is None else seed
    records += [TargetRecord(target.label, reference) for target in targets[len(records) :]]
    deadline = Deadline(budget, clock or WallClock())
    try:
        lab = PairLab(targets, base, device, timeout, {} if facts is None else facts, former or {})
        for record in records:
            record.seed = seed
            for line in journal.take_earlier_records(IN_ONE, record.target):
                record.take(line["state"])
        if nodes is not None and base is not None:
            nodes.share(str(base.root))
        settles = partial(is_settled, limit=limit, tolerated=tolerated, family=len(records))
        if in_one and nodes is not None:
            time_in_one_training_on(nodes, lab, records, deadline, settles, journal)
        elif in_one:
            time_in_one_training(ChildOneLab(lab), records, deadline, settles, watch, journal)
    except BaseException:
        mark_interrupted(records)
        raise
    memo = Kept(journal, pair_to_json, pair_from_json)
    time_pairs(lab, records, deadline, limit, tolerated, seed, watch, memo, nodes)
