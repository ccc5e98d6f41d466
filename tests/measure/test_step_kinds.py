"""Whether steps of several kinds take turns, on paper."""

from __future__ import annotations

import random

import pytest

from perfaudit.measure.step_kinds import may_take_turns, period_of


@pytest.mark.parametrize(
    ("seconds", "period"),
    [
        ([1.0] * 12, 1),
        ([1.0, 2.0] * 6, 2),
        ([2.0, 1.0] * 3, 2),
        ([1.0, 2.0] * 2, 1),  # two rounds would fit many orders
        ([1.0, 1.0, 2.0] * 4, 3),
        ([1.0, 1.0, 1.0, 5.0] * 3, 4),
        ([1.0, 2.0, 1.0, 3.0] * 3, 2),  # what is left of two alternating kinds is small beside them
        ([1.0, 1.1] * 6, 1),  # which no block need respect
        ([1.0, 3.0] * 4 + [1.0, 30.0] + [1.0, 3.0], 2),  # one step took ten times as long
        ([1.0] * 5 + [10.0] + [1.0] * 6, 1),  # an evaluation
        ([1.0, 1.0, 1.0, 1.0, 9.0] * 2 + [1.0, 1.0], 1),  # every fifth step: longer than a round may be
        ([0.0] * 12, 1),
        ([1.0], 1),
        ([], 1),
    ],
)
def test_steps_that_take_turns(seconds: list[float], period: int) -> None:
    assert period_of(seconds) == period


def test_noise_has_no_order() -> None:
    """Of 500 rows of twelve steps of a busy machine, 1 % look like one; their blocks are longer, and tell no less."""
    chance = random.Random(0)
    found = [period_of([chance.lognormvariate(0.0, 0.3) for _ in range(12)]) for _ in range(500)]
    assert sum(period > 1 for period in found) <= 15


def test_kinds_are_seen_in_noise() -> None:
    chance = random.Random(0)
    found = [period_of([(1 + at % 2) * chance.lognormvariate(0.0, 0.1) for at in range(12)]) for _ in range(100)]
    assert found.count(2) >= 95


@pytest.mark.parametrize(("seconds", "may"), [([1.0, 1.0, 1.0], False), ([1.0, 2.0, 1.0], True)])
def test_few_steps_say_whether_more_are_worth_a_look(seconds: list[float], may: bool) -> None:
    assert may_take_turns(seconds) == may
