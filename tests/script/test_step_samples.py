"""Which call tells the samples of a step. Tensors are stand-ins: no torch."""

from __future__ import annotations

import pytest

from perfaudit.script.batch_axis import FIRST, SECOND, UNCLEAR
from perfaudit.script.step_samples import StepSamples


class Tensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape


def test_the_first_call_before_each_backward_pass_tells() -> None:
    samples = StepSamples()
    assert samples.wants_inputs
    assert samples.count_inputs([3, {"x": Tensor(8, 2)}], FIRST) == 8
    assert not samples.wants_inputs
    samples.begin_backward()
    assert samples.wants_inputs


def test_models_are_not_asked_where_a_batch_tells() -> None:
    samples = StepSamples()
    samples.take_batch()
    samples.begin_backward()
    assert not samples.wants_inputs
    samples.end_update()
    assert samples.wants_inputs


def test_a_call_behind_a_number_that_was_read_tells_too() -> None:
    """The calls before it may have chosen actions: `parted_at` is where graphs were then."""
    samples = StepSamples()
    samples.note_read(3)
    samples.count_inputs([Tensor(1, 2)], FIRST)
    assert samples.parted_at == 0
    samples.note_read(9)
    assert samples.wants_inputs
    samples.count_inputs([Tensor(8, 2)], FIRST)
    samples.note_read(20)  # the loss, for a log
    assert samples.parted_at == 9
    samples.begin_backward()
    assert samples.parted_at == 0


def test_a_number_that_is_read_asks_no_model_where_a_batch_tells() -> None:
    samples = StepSamples()
    samples.count_inputs([Tensor(1, 2)], FIRST)
    samples.take_batch()
    samples.note_read(9)
    assert not samples.wants_inputs


@pytest.mark.parametrize(
    ("calls", "are_again"), [("aa", True), ("ab", False), ("ba", False), ("", False), ("n", False)]
)
def test_inputs_are_the_same_as_before(calls: str, are_again: bool) -> None:
    """Of an update of which all calls had the tensor of the call before. n: a call without a tensor."""
    tensors = {"a": Tensor(8, 2), "b": Tensor(8, 2), "n": None}
    samples = StepSamples()
    samples.count_inputs([tensors["a"]], FIRST)
    samples.end_update()
    for name in calls:
        samples.count_inputs([tensors[name]], FIRST)
    assert samples.are_again() == are_again
    samples.end_update()
    assert not samples.are_again()


def test_another_tensor_in_the_same_place_in_memory_is_another_one() -> None:
    samples, found = StepSamples(), []
    for _ in range(3):
        tensor = Tensor(8, 2)
        samples.count_inputs([tensor], FIRST)
        del tensor
        found.append(samples.are_again())
        samples.end_update()
    assert found == [False, False, False]


@pytest.mark.parametrize(("axis", "samples"), [(FIRST, 35), (SECOND, 20), (UNCLEAR, 0)])
def test_samples_are_in_the_dimension_that_the_model_tells(axis: int, samples: int) -> None:
    assert StepSamples().count_inputs([Tensor(35, 20)], axis) == samples
