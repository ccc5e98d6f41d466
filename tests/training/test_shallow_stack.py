"""The loss of our loop is computed no deeper in the stack than that of the user's own."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining
from perfaudit.training.shallow_stack import call_at_bottom

TRAIN = """
import sys

from torch import nn, randn
from torch.utils.data import DataLoader

depths = []


class Model(nn.Linear):
    def forward(self, x):
        frame = sys._getframe()
        depths.append(0)
        while frame.f_back is not None:
            frame, depths[-1] = frame.f_back, depths[-1] + 1
        return super().forward(x)


def build_model():
    return Model(4, 2)


def build_dataloader():
    return DataLoader(randn(16, 4), batch_size=4)


def training_step(model, batch):
    return model(batch).sum()
"""


def depth() -> int:
    frame: Any = sys._getframe()
    found = 0
    while frame := frame.f_back:
        found += 1
    return found


def test_a_step_lies_as_deep_as_in_a_loop_in_main(project: Callable[..., Path]) -> None:
    project(**{"train.py": TRAIN})
    training = FactoryTraining(Target("train.py"), "cpu")
    training.whole_step()
    training.whole_step()
    # Below forward() lie module, main(), training_step() and the two of Module.__call__.
    assert max(sys.modules[training.model.__module__].depths) <= 5


def test_what_is_called_returns_raises_and_sees_the_context() -> None:
    assert call_at_bottom(depth) == 0 < depth()
    said = contextvars.ContextVar("said", default="")
    said.set("yes")
    assert call_at_bottom(said.get) == "yes"
    with pytest.raises(StopIteration):
        call_at_bottom(next, iter(()))
    with pytest.raises(SystemExit):
        call_at_bottom(sys.exit, 3)


def test_what_is_traced_stays_traced() -> None:
    seen: list[str] = []
    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: seen.append(frame.f_code.co_name))
    try:
        call_at_bottom(depth)
    finally:
        sys.settrace(before)
    assert "depth" in seen
