"""Records of updates, made of what was noted, and what is noted of calls. No torch."""

from __future__ import annotations

import itertools

import pytest

from perfaudit.script.noted_events import (
    ACTED,
    BACKWARD,
    BATCH,
    CALLED,
    END,
    FORWARD,
    MOST_NOTED,
    NO_GRADIENTS,
    OPTIMIZER,
    OURS,
    STRETCH_ENDS,
    TOLD,
    UNCLEAR_CALLS,
    UPDATE,
    UPDATED,
    WANTED,
    UpdateRecords,
)
from perfaudit.script.spans import PHASES
from perfaudit.script.watch import Watch
from perfaudit.script.watched_tensors import WatchedTensors

STEP = [
    *(WANTED, 1.0, None), *(BATCH, 3.0, 16), *(FORWARD, 3.0, None), *(CALLED, 6.0, 0), *(BACKWARD, 7.0, 5.0), *(END, 12.0, None),
    *(UPDATE, 13.0, None), *(END, 14.0, None), *(UPDATED, 15.0, (0, {"loss": 0.5})), *(TOLD, 99.0, None),
]  # fmt: skip


def phases(record: dict[str, list[float]]) -> dict[str, float]:
    return {name: seconds for name, seconds in zip(PHASES, record["phases"], strict=True) if seconds}


def test_a_record_of_a_step() -> None:
    made = UpdateRecords(0.0)
    for first in range(0, len(STEP), 9):  # however much is there when somebody asks
        made.add(STEP[first : first + 9])
    (record,) = made.take()
    assert phases(record) == {"data_wait": 2.0, "forward": 4.0, "backward": 5.0, "optimizer": 1.0, "other": 3.0}
    assert (record["seconds"], record["samples"], record["backwards"], record["loss"]) == (15.0, 16, 1, 0.5)
    made.add([at + 100.0 if number % 3 == 1 else at for number, at in enumerate(STEP)])
    (record,) = made.take()
    assert record["seconds"] == 16.0  # the 84 s behind the first update were ours


def test_what_is_ours_is_no_part_of_a_phase() -> None:
    made = UpdateRecords(0.0)
    made.add([FORWARD, 0.0, None, OURS, 50.0, 1.0, CALLED, 52.0, NO_GRADIENTS, UPDATED, 52.0, (0, {})])
    (record,) = made.take()
    assert (phases(record), record["seconds"], record["without_gradients"]) == ({"forward": 3.0}, 3.0, 1)


@pytest.mark.parametrize(("seen", "samples"), [(ACTED, 16), (OURS, 1), (UNCLEAR_CALLS, 0)])
def test_samples_are_those_of_the_calls_behind_an_action(seen: int, samples: int) -> None:
    """Where the graph of the loss has shown that, and left out where it has shown nothing; the look at it is ours."""
    call = [FORWARD, 0.0, None, CALLED, 1.0]
    made = UpdateRecords(0.0)
    made.add(
        [*call, 1, STRETCH_ENDS, 1.0, 5, *call, 16, STRETCH_ENDS, 1.0, 9, seen, 8.0, 2.0, BACKWARD, 8.0, 7.0, END, 9.0, None,
         UPDATED, 9.0, (0, {})]
    )  # fmt: skip
    (record,) = made.take()
    assert (record["samples"], record["seconds"]) == (samples, 3.0)


def test_hooks_of_an_update_take_time_of_no_phase() -> None:
    """A clock that goes on by 1 s each time it is read: what we read it for between two events is left out."""
    seconds = itertools.count(0.0)
    watch = Watch(lambda optimizer: None, clock=lambda: next(seconds))
    watch.counts.updates = 9  # models are looked for before that
    optimizer = phases  # anything that can be referred to weakly
    for _ in range(3):
        watch._updates.before(optimizer, (), {})
        watch._updates.after(optimizer)
    records = watch.take_records()
    # One lasts until the first hook, the other from it to the second.
    assert [record["seconds"] for record in records[1:]] == [2.0, 2.0]
    assert phases(records[-1]) == {"optimizer": 1.0, "other": 1.0}


def test_what_an_update_reads_is_not_noted() -> None:
    """An Adam reads two numbers for each parameter."""
    watch = Watch(lambda optimizer: None)
    watch.counts.updates = 9  # models are looked for before that
    item = WatchedTensors(watch._notes, int).watch_items_on_host(lambda tensor: 7)
    watch._updates.before(None, (), {})
    noted = list(watch._notes.events)
    assert [item(None) for _ in range(100)] == [7] * 100
    assert watch._notes.events == noted
    watch._updates.after(None)
    item(None)
    assert watch._notes.events[-3] == STRETCH_ENDS


@pytest.mark.parametrize(
    "name", ["watch_items_on_host", "watch_reads_on_host", "watch_reads", "_watch_batches", "_watch_calls"]
)
def test_calls_without_any_update_fill_no_memory(name: str) -> None:
    """As an evaluation, or a script that updates by hand."""
    watch = Watch(lambda optimizer: None, clock=lambda: 1.0)
    call = getattr(watch if name[0] == "_" else WatchedTensors(watch._notes, int), name)(lambda model: [])
    most = 0
    for _ in range(MOST_NOTED // 3 + 10):
        call(None)
        most = max(most, len(watch._notes.events))
    assert most <= MOST_NOTED + 9
    assert watch.take_records() == []


def test_a_phase_is_noted_that_raises() -> None:
    def fail() -> None:
        raise ValueError

    watch = Watch(lambda optimizer: None)
    in_phase = watch._notes.in_phase("optimizer", fail)
    with pytest.raises(ValueError):
        in_phase()
    assert watch._notes.events[::3] == [OPTIMIZER, END]
    assert watch._notes.depth == 0


def test_what_comes_before_the_first_update_is_no_measure_of_the_others() -> None:
    """The first rollout of a PPO is 2,048 calls of its models, and none lies between most of the updates behind it."""
    made = UpdateRecords(0.0)
    rollout: list[object] = [FORWARD, 0.0, None, CALLED, 0.0, NO_GRADIENTS] * 2048
    made.add([*rollout, *STEP, *STEP])
    assert made.events_per_update == len(STEP) // 3 + 1  # TOLD of the first one lies behind it
    for _ in range(8):
        made.add(STEP)
    assert made.events_per_update == pytest.approx(len(STEP) // 3, rel=0.02)
