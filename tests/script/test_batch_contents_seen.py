"""How many samples a batch has, of whatever class a script makes it. No torch."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.script.batch_axis import FIRST
from perfaudit.script.batch_contents import contents_of, tokens_of
from perfaudit.script.samples import count_samples
from perfaudit.script.step_samples import StepSamples


class Tensor:
    def __init__(self, *shape: Any) -> None:
        self.shape = shape


class Attributes(dict[str, Any]):
    """A dict whose keys are its attributes, as batches of reinforcement learning are: it raises KeyError for any other."""

    __getattr__ = dict.__getitem__


class Closed:
    """Raises whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")


class Endless(dict[str, Any]):
    def values(self) -> Any:
        raise RuntimeError("is read once")


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        ((Tensor(8, 3), Tensor(8)), 8),
        (Attributes(image=Tensor(16, 7), mask=None), 16),
        ([Closed(), Tensor(4, 2)], 4),
        ([Endless(x=Tensor(8)), Tensor(4, 2)], 4),
        (Closed(), 0),
        (Tensor("eight", 2), 0),
    ],
    ids=(
        "tensors",
        "attributes",
        "closed, tensor",
        "values raise",
        "closed",
        "shape of texts",
    ),  # pytest asks them for a name
)
def test_samples_of_a_batch(batch: Any, samples: int) -> None:
    assert count_samples(batch) == samples
    assert StepSamples().count_inputs([batch], FIRST) == samples


def test_contents_of_a_batch_that_raises() -> None:
    assert contents_of(Attributes(image=Closed())) == (0, 0)
    assert tokens_of(Attributes(attention_mask=Closed())) is None
