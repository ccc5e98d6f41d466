"""Which share of the time of a race lies in a few long steps."""

from __future__ import annotations

import pytest

from perfaudit.measure.base_steps import FEWEST_BLOCKS, BaseSteps, BlockTime


def race(
    seconds: list[float], cpu: list[float] | None = None, queued: list[float] | None = None, by_others: float = 1e9
) -> BaseSteps:
    """Blocks of two steps, of which each takes so long; the base has one of them, a usual one."""
    steps = BaseSteps(by_others=by_others)
    steps.add(BlockTime(1, 1.0, 1.0, 1.0), {"forward": 0.5})
    waiting = queued or [0.0] * len(seconds)
    for counted, process, waited in zip(seconds, cpu or seconds, waiting, strict=True):
        steps.add_of_kind("", BlockTime(2, 2 * counted, 2 * process, 2 * counted, 2 * waited))
    return steps


def test_a_long_step_counts_in_whatever_block_it_is() -> None:
    """The base has one block here, a usual one: in halves it has few, and an evaluation is seldom in one of these."""
    steps = race([1.0] * 19 + [20.0])
    assert steps.summary()["long"] == pytest.approx(19 / 39)


def test_steps_that_others_made_long_are_not_long() -> None:
    assert race([1.0] * 19 + [20.0], [1.0] * 20).summary()["long"] == 0.0


def test_what_is_in_place_makes_no_step_long() -> None:
    steps = race([1.0] * 10)
    for _ in range(10):
        steps.add_of_kind("loader", BlockTime(4, 40.0, 40.0))
    assert steps.summary()["long"] == 0.0


def test_of_few_blocks_nothing_is_told() -> None:
    assert race([1.0] * (FEWEST_BLOCKS - 2) + [50.0]).summary()["long"] == 0.0


def test_the_base_s_own_long_steps_count_where_others_have_few() -> None:
    steps = race([1.0] * 10)
    for _ in range(3):
        steps.add(BlockTime(1, 1.0, 1.0, 1.0), {"forward": 0.5})
    steps.add(BlockTime(1, 6.0, 6.0, 6.0), {"forward": 3.0})
    found = steps.summary()
    assert found["long"] == pytest.approx(5 / 10)
    assert (found["steps"], found["counted"], found["wall"], found["phases"]) == (5, 10.0, 10.0, {"forward": 5.0})


@pytest.mark.parametrize(
    ("seconds", "queued", "by_others", "share"),
    [
        # Threads spun while others held the core of one of them: the processor time of the block is as long as the block.
        ([1.0] * 16 + [11.0] * 4, [0.0] * 16 + [10.0] * 4, 100.0, 0.0),
        ([1.0] * 16 + [11.0] * 4, [0.0] * 16 + [5.0] * 4, 100.0, 20 / 40),  # half of it was waiting
        ([1.0] * 16 + [11.0] * 4, [0.0] * 20, 100.0, 40 / 60),  # an evaluation on a machine that others use
        # Of an evaluation beside a program that never rests, as much is waiting as of each other step.
        ([2.0] * 16 + [22.0] * 4, [1.0] * 16 + [11.0] * 4, 100.0, 80 / 120),
        ([1.0] * 16 + [11.0] * 4, [0.0] * 16 + [10.0] * 4, 0.0, 40 / 60),  # only its own threads held the cores
        ([1.0] * 16 + [11.0] * 4, [0.0] * 16 + [10.0] * 4, 40.0, 40 / 80),  # only as much as others computed
        ([1.0] * 14 + [11.0] * 6, [0.0] * 14 + [10.0] * 6, 200.0, 120 / 160),  # more than a quarter waits: that is usual here
    ],
)  # fmt: skip
def test_what_a_step_waited_for_cores_makes_it_no_long_one(
    seconds: list[float], queued: list[float], by_others: float, share: float
) -> None:
    assert race(seconds, queued=queued, by_others=by_others).summary()["long"] == pytest.approx(share)


def test_an_evaluation_counts_although_other_steps_met_other_programs() -> None:
    """Both are in this race, and the patch of a usual step would be told with a saving that no run has."""
    seconds = [1.0] * 30 + [11.0] * 4 + [31.0] * 2
    steps = race(seconds, queued=[0.0] * 30 + [10.0] * 4 + [0.0] * 2)
    assert steps.summary()["long"] == pytest.approx(60 / 96)
