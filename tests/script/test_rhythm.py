"""Steps of scripts with one optimizer or several, from the order of their updates."""

from __future__ import annotations

import pytest

from perfaudit.script.rhythm import ANEW, find_rhythm, find_rounds

D, G, C = 0, 1, 2


def test_one_optimizer_makes_a_step_with_each_update() -> None:
    assert find_rhythm([D] * 4).steps == ((0, 1), (1, 2), (2, 3), (3, 4))


def test_no_update_is_no_step() -> None:
    assert find_rhythm([]).steps == ()


@pytest.mark.parametrize(
    ("updates", "steps"),
    [
        ([D, G] * 3, ((0, 2), (2, 4), (4, 6))),
        ([D, G] * 3 + [D], ((0, 2), (2, 4), (4, 6))),
        ([D, D, D, G] * 3, ((0, 4), (4, 8), (8, 12))),
        ([G, G, D] * 2, ((0, 3), (3, 6))),
        ([D, G, C, G] * 3, ((0, 4), (4, 8), (8, 12))),
    ],
)
def test_an_order_that_repeats_is_a_step(updates: list[int], steps: tuple[tuple[int, int], ...]) -> None:
    rhythm = find_rhythm(updates)
    assert rhythm.is_regular
    assert rhythm.steps == steps


def test_what_comes_before_the_order_is_left_out() -> None:
    """Ten updates of the discriminator first, then two for one of the generator's."""
    updates = [D] * 10 + [D, D, G] * 8
    rhythm = find_rhythm(updates)
    assert rhythm.is_regular
    assert [updates[a:b] for a, b in rhythm.steps] == [[D, D, G]] * 8


@pytest.mark.parametrize("updates", [[D] * 40 + [G], [D] * 20 + [G] * 20 + [C] * 3, ([D] * 60 + [G] * 60) * 2])
def test_optimizers_one_behind_the_other_make_a_step_with_each_update(updates: list[int]) -> None:
    """A model that is trained layer by layer."""
    rhythm = find_rhythm(updates)
    assert rhythm.is_regular
    assert len(rhythm.steps) == len(updates)


def test_without_an_order_each_round_of_the_first_one_is_a_step() -> None:
    updates = [D, G, D, D, G, D, G, D, D, D, G, D, D, G, D]
    rhythm = find_rhythm(updates)
    assert not rhythm.is_regular
    assert [updates[a:b] for a, b in rhythm.steps] == [[D, G], [D, D, G], [D, G], [D, D, D, G], [D, D, G]]


def test_optimizers_that_are_built_anew_count_as_one() -> None:
    """One for each call of a function; one for the inner loop of each task, beside that of the outer one."""
    alone = find_rhythm([0, 0, 1, 2, 2, 2, 3, 4, 5, 5])
    assert (len(alone.steps), alone.is_regular, alone.optimizers) == (10, True, {ANEW})
    inner = find_rhythm([0, 0, 0, G, 2, 2, 2, G, 3, 3, 3, G, 4, 4, 4, G])
    assert (inner.steps, inner.is_regular) == (((0, 4), (4, 8), (8, 12), (12, 16)), True)
    assert inner.optimizers == {G, ANEW}


def test_a_round_of_several_optimizers_is_one_step() -> None:
    """It is no step yet: the next update tells whether it was one."""
    for number in (2, 4, 8):
        assert find_rhythm(range(number)).steps == ()
        assert find_rhythm([*range(number), *range(number)]).steps == ((0, number), (number, 2 * number))
    assert len(find_rhythm(range(20)).steps) == 20


def test_an_epoch_that_repeats_is_no_step_where_it_has_several_rounds() -> None:
    """Epochs of seven batches, of which every third steps the generator, too: the last batch begins another round."""
    epoch = [D, D, D, G, D, D, D, G, D]
    assert [len(epoch), *(behind - first for first, behind in find_rhythm(epoch * 20).steps[:1])] == [9, 9]
    rounds = find_rounds(epoch * 20)
    assert {tuple((epoch * 20)[first:behind]) for first, behind in rounds.steps} == {(D, D, D, G), (D, D, D, D, G)}
    assert (len(rounds.steps), rounds.is_regular) == (40, False)


@pytest.mark.parametrize(
    "order", [[D, G], [D, D, D, G], [G, G, D], [D, G, C, G], [D, D, G, C, G, C], [D] * 20 + [G] * 20]
)
def test_one_round_is_one_round(order: list[int]) -> None:
    assert find_rounds(order * 3) == find_rhythm(order * 3)
    assert len(find_rounds(order * 3).steps) == 3


def test_a_training_of_one_optimizer_ahead_of_the_others_is_left_out() -> None:
    """An autoencoder first, for longer than the GAN behind it was seen; as long as that has hardly begun, its updates count."""
    begun = find_rhythm([C] * 200 + [D, G] * 80)
    assert begun.is_regular and begun.steps[0] == (200, 202) and len(begun.steps) == 80
    early = find_rhythm([C] * 200 + [D, G] * 2)
    assert early.is_regular and early.steps == tuple((at, at + 1) for at in range(200))
