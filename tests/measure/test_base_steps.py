"""Which share of the time of a race lies in a few long steps."""

from __future__ import annotations

import pytest

from perfaudit.measure.base_steps import FEWEST_BLOCKS, BaseSteps


def race(seconds: list[float], cpu: list[float] | None = None, kind: str = "") -> BaseSteps:
    steps = BaseSteps()
    steps.add({"steps": 1, "counted": 1.0, "wall": 1.0, "cpu": 1.0, "queued": 0.0}, {})
    for counted, process in zip(seconds, cpu or seconds, strict=True):
        steps.add_of_kind(kind, 2, 2 * counted, 2 * process)
    return steps


def test_a_long_step_counts_in_whatever_block_it_is() -> None:
    """The base has one block here, a usual one: in halves it has few, and an evaluation is seldom in one of these."""
    steps = race([1.0] * 19 + [20.0])
    assert steps.summary()["long"] == pytest.approx(19 / 39)
    assert steps.summary()["usual"] == [1.0, 1.0]


def test_steps_that_others_made_long_are_not_long() -> None:
    assert race([1.0] * 19 + [20.0], [1.0] * 20).summary()["long"] == 0.0


def test_what_is_in_place_makes_no_step_long() -> None:
    steps = race([1.0] * 10)
    for _ in range(10):
        steps.add_of_kind("loader", 4, 40.0, 40.0)
    assert steps.summary()["long"] == 0.0


def test_of_few_blocks_nothing_is_told() -> None:
    assert race([1.0] * (FEWEST_BLOCKS - 2) + [50.0]).summary()["long"] == 0.0
