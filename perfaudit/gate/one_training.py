"""Times two versions of a training in one running training, where that can be. Knows no torch; the lab knows processes.

The code as it is runs, and the reference's functions take the place of its own for a block of steps at a time, beside a control.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Protocol

from perfaudit.gate.decision import Settles
from perfaudit.gate.one_training_quads import QUADS, control, differs_from_itself
from perfaudit.gate.records import OneTraining, TargetRecord
from perfaudit.gate.swappable import IN_PLACE, NotInOneTraining, as_of_a_change
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import MOST_KEPT, Deadline
from perfaudit.measure.engine import ChildEngine, Json
from perfaudit.measure.entrants import CONTROL
from perfaudit.measure.journal import Journal
from perfaudit.measure.watch import Standing, Watch

REFERENCE = "reference"  # its key in a race
IN_ONE = "one training"  # lines of a journal that say what came of a race
SLICE = 1.0  # seconds between two looks at how a race stands
SWAPPED = "only functions that each step runs differ, and they were swapped in one training"
SAME = "no function that the training runs differs; identical code was swapped in one training"


class OneLab(Protocol):
    """Has both versions of a target in one training; targets go by their number."""

    def together(self, number: int, seed: int, seconds: float) -> tuple[ChildEngine, str]:
        """The training, ready to race, and in words what is swapped in it.

        seconds: see `pair_lab.PairLab.open`. Raises NotInOneTraining, also where a version does not run alone, and ChildFailed.
        """


def time_in_one_training(
    lab: OneLab,
    records: Sequence[TargetRecord],
    deadline: Deadline,
    settles: Settles,
    watch: Watch,
    journal: Journal | None = None,
) -> None:
    """Measure each target for which that can be in one training, into its record; of the others the record says why not.

    Each has an equal share of the time that is left. A race that cannot be believed, or that fails, leaves nothing behind
    but the reason, and its target goes to pairs of processes like the others. settles: whether a record needs no more data.
    journal: keeps what came of each.
    """
    for number, record in enumerate(records):
        if record.why:  # an earlier session has tried it
            continue
        if deadline.seconds_left() <= 0:
            return
        share = deadline.part(deadline.seconds_left() / (len(records) - number))
        race_one(lab, number, record, share, settles, watch)
        if journal is not None:
            journal.append(IN_ONE, key=record.target, state=record.state())


def race_one(
    lab: OneLab, number: int, record: TargetRecord, deadline: Deadline, settles: Settles, watch: Watch
) -> None:
    """Race one target in one training until it is settled or the time is over; or its record says why that cannot be."""
    record.is_begun = True
    try:
        running, record.why = lab.together(number, record.seed or 0, deadline.seconds_left())
        record.one = OneTraining()
        with contextlib.closing(running), in_place():
            _race(running, record, record.one, deadline, settles, watch)
    except (NotInOneTraining, ChildFailed) as refusal:
        record.one, record.settled, record.why = None, False, str(refusal)


@contextlib.contextmanager
def in_place() -> Iterator[None]:
    """Inside, what a child fails with is told as a failure with the reference's functions in place."""
    try:
        yield
    except ChildFailed as failure:
        why = as_of_a_change(str(failure))
        raise NotInOneTraining(why if IN_PLACE in why else f"{IN_PLACE}, {why}") from failure


def _race(
    running: ChildEngine, record: TargetRecord, one: OneTraining, deadline: Deadline, settles: Settles, watch: Watch
) -> None:
    """Race until the data settle it, or the time is over. Raises NotInOneTraining and ChildFailed."""
    is_last, most_kept = False, MOST_KEPT * deadline.seconds_left()
    while not is_last and not record.settled:
        left = deadline.seconds_left()
        is_last = left <= SLICE or len(one.log_ratios) >= QUADS
        state = running.race(min(SLICE, left), is_last)
        deadline.keep(min(state.get("longest", 0.0), most_kept))
        _take(one, state)
        _show(one, watch)
        if why := state["entrants"][REFERENCE]["left"] or state["trouble"]:
            raise NotInOneTraining(as_of_a_change(why))
        if why := state["entrants"][CONTROL]["left"]:
            raise NotInOneTraining(f"with identical code in place of the same code, {why.removeprefix('with it, ')}")
        if not is_last and (why := differs_from_itself(one, ended=False)):
            raise NotInOneTraining(why)  # at the end no time is left for pairs, and `time_verdict` says so
        record.settled = settles(record)


def _take(one: OneTraining, state: Json) -> None:
    """Keep what the child tells. There the reference is compared with the code as it is; here it is the other way round."""
    reference, base = state["entrants"][REFERENCE], state["base"]
    one.log_ratios = [-value for value in reference["log_ratios"]]
    one.seconds = list(reference["seconds"])
    one.control = list(state["entrants"][CONTROL]["log_ratios"])
    one.wall_over_cpu = base["wall"] / base["cpu"] if base["cpu"] else None


def _show(one: OneTraining, watch: Watch) -> None:
    same = control(one, ended=False)
    ratio = math.exp(-statistics.median(one.log_ratios)) if one.log_ratios else None
    low, high = (same.low, same.high) if same is not None else (None, None)
    watch.standings(
        [
            Standing("the reference", len(one.log_ratios), ratio),
            Standing(CONTROL, len(one.control), same.ratio if same is not None else None, low, high, is_control=True),
        ]
    )
