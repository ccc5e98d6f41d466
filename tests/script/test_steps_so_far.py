"""How many steps there were, asked while a script runs."""

from __future__ import annotations

import pytest

from perfaudit.script.steps_so_far import StepsSoFar


@pytest.mark.parametrize(
    ("updates", "steps", "updates_per_step"),
    [
        ([0] * 30, 30, 1),
        ([0, 1] * 10, 10, 2),
        ([0, 0, 0, 0, 0, 1] * 10, 10, 6),
        (([0] * 20 + [1] * 20) * 5, 5, 40),  # a GAN with many updates of either
        (([0] * 20 + [1] * 20) * 5 + [0] * 5, 5, 41),
        ([0, 0, 1, 2, 1, 2] * 10, 10, 6),  # soft actor-critic: two updates of the actor behind two of the critic
        (([0] * 32 + [1] * 32) * 3, 3, 64),  # a PPO: as many updates as a round can have
        (([0] * 32 + [1] * 32) * 3 + [0] * 5, 3, 66),
        ([0] * 20 + [1] * 10, 10, 3),  # nothing repeats yet
        (([0] * 60 + [1] * 60) * 3, 360, 1),  # too long for a round: layer by layer
        ([0] * 200 + [1] * 100, 300, 1),
        ([2] * 200 + [0, 1] * 80, 80, 2),  # an autoencoder alone, then a GAN
        ([each for each in range(10) for _ in range(5)], 50, 1),  # an optimizer for each task
        ([0, *(each for task in range(1, 9) for each in (task, task, 0))], 9, 3),  # beside one that stays
    ],
)
def test_steps_by_the_order_of_updates(updates: list[int], steps: int, updates_per_step: int) -> None:
    so_far = StepsSoFar()
    for optimizer in updates:
        so_far.add(optimizer)
    assert (so_far.steps, so_far.updates_per_step) == (steps, updates_per_step)


@pytest.mark.parametrize(
    ("updates", "is_in_it"),
    [
        ([0] * 30, False),
        ([0] * 30 + [1] * 30, True),
        ([0] * 30 + [1] * 30 + [0], False),
        ([0] * 200 + [1] * 65, False),  # too long for a round
        ([0, 1, 2, 3], False),  # each task has its own
    ],
)
def test_a_first_round_is_known_by_an_optimizer_that_has_not_come_up_again(updates: list[int], is_in_it: bool) -> None:
    so_far = StepsSoFar()
    for optimizer in updates:
        so_far.add(optimizer)
    assert so_far.is_in_first_round == is_in_it
