"""The optimizers of a training, by number. No torch."""

from __future__ import annotations

from perfaudit.script.numbered_optimizers import NO_NUMBER, NumberedOptimizers


class Adam:
    """Anything that can be referred to weakly."""


def test_each_optimizer_keeps_its_number() -> None:
    numbered, first, second = NumberedOptimizers(), Adam(), Adam()
    assert [numbered.number(each) for each in (first, second, first, None)] == [0, 1, 0, NO_NUMBER]
    assert numbered.kinds == ["Adam", "Adam"]
    assert numbered.optimizer(1) is second


def test_one_that_is_built_where_another_was_has_a_number_of_its_own() -> None:
    numbered, found = NumberedOptimizers(), []
    for _ in range(3):
        optimizer = Adam()  # the one before is gone, and may leave its place in memory
        found.append(numbered.number(optimizer))
        del optimizer
    assert found == [0, 1, 2]
    assert numbered.optimizer(0) is None
