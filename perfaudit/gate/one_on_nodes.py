"""Races in one training on nodes, several targets at once: the same race as in `one_training`, each on one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from perfaudit.gate.decision import Settles
from perfaudit.gate.one_lab import ChildOneLab
from perfaudit.gate.one_training import IN_ONE, race_one
from perfaudit.gate.pair_lab import Built, PairLab
from perfaudit.gate.records import TargetRecord
from perfaudit.measure.clock import Deadline, WallClock
from perfaudit.measure.elsewhere import Nodes, Work, run_on
from perfaudit.measure.journal import Journal, Json
from perfaudit.measure.watch import Watch


def time_in_one_training_on(
    nodes: Nodes,
    lab: PairLab,
    records: Sequence[TargetRecord],
    deadline: Deadline,
    settles: Settles,
    journal: Journal,
) -> None:
    """See `one_training.time_in_one_training`."""
    run_on(nodes, [InOne(lab, number, records, deadline, nodes, settles, journal) for number in range(len(records))])


@dataclass(slots=True)
class InOne:
    """The race of target `number` in one training, where that can be, as a series of one set; see `one_training`."""

    lab: PairLab
    number: int
    records: Sequence[TargetRecord]
    deadline: Deadline
    nodes: Nodes
    settles: Settles
    journal: Journal

    @property
    def record(self) -> TargetRecord:
        return self.records[self.number]

    @property
    def stage(self) -> str:
        return ""  # nothing of it is in a memo: its line in the journal is read before

    def is_open(self) -> bool:
        return not self.record.why

    def has_time(self) -> bool:
        return self.deadline.seconds_left() > 0

    def measure(self) -> None:
        raise AssertionError("always given away")

    def work(self, ahead: int) -> Work | None:
        if ahead:
            return None
        self.record.is_begun = True
        left = self.deadline.seconds_left()
        waiting = sum(not record.why for record in self.records)
        seconds = min(left, left * self.nodes.width / waiting)
        return partial(race_there, self.lab.here(), self.number, self.record, seconds, self.settles)

    def take(self, found: tuple[Json, Built]) -> None:
        self.record.take(found[0])
        self.lab.take(found[1], self.record)
        self.journal.append(IN_ONE, key=self.record.target, state=self.record.state())

    def recall(self, piece: object, state: Json) -> None: ...

    def set_to_keep(self) -> None:
        return None


def race_there(
    lab: Callable[[], PairLab], number: int, record: TargetRecord, seconds: float, settles: Settles
) -> tuple[Json, Built]:
    """Race target `number` in one training on this node for so many seconds: the record's state, and what was built."""
    there = lab()
    race_one(ChildOneLab(there), number, record, Deadline(seconds, WallClock()), settles, Watch())
    return record.state(), there.facts_and_digests()
