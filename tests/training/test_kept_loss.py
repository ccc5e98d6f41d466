"""A loss and a batch live as long as the variables of the user's own loop keep them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining

TRAIN = """
import weakref

from torch import nn, randn
from torch.utils.data import DataLoader

losses, batches, alive = [], [], []
breaks = False


def note(when):
    alive.append((when, [each() is not None for each in losses], [each() is not None for each in batches]))


def check(gradient):
    note("backward")
    if breaks:
        raise ValueError("no gradient")


class Batches:
    def __len__(self):
        return 64

    def __getitem__(self, at):
        note("loading")
        return randn(4)


def build_model():
    return nn.Linear(4, 2)


def build_dataloader():
    return DataLoader(Batches(), batch_size=1)


def training_step(model, batch):
    batches.append(weakref.ref(batch))
    note("forward")
    loss = model(batch).sum()
    loss.register_hook(check)
    losses.append(weakref.ref(loss))
    return loss


def loop(steps):
    model, step = build_model(), 0
    for batch in build_dataloader():
        loss = training_step(model, batch)
        loss.backward()
        step += 1
        if step == steps:
            break
    note("end")
"""


@pytest.fixture
def training(project: Callable[..., Path]) -> FactoryTraining:
    project(**{"train.py": TRAIN})
    return FactoryTraining(Target("train.py"), "cpu")


def user_module(training: FactoryTraining) -> Any:
    return sys.modules[training.factories["step"].__module__]


def test_what_a_step_made_lives_as_long_as_in_a_loop(training: FactoryTraining) -> None:
    user = user_module(training)
    for _ in range(3):
        training.whole_step()
    user.note("end")
    ours = list(user.alive)
    for each in (user.alive, user.losses, user.batches):
        each.clear()
    user.loop(3)
    assert ours == user.alive
    assert ours[-1] == ("end", [False, False, True], [False, False, True])
    assert ours[3] == ("loading", [True], [True])


def test_a_step_that_raised_keeps_neither_graph_nor_batch(training: FactoryTraining) -> None:
    """The next step has its memory: a graph that was not walked back holds all that its layers have put out."""
    user = user_module(training)
    training.whole_step()
    user.breaks = True
    with pytest.raises(ValueError, match="no gradient"):
        training.whole_step()
    assert [each() is not None for each in user.losses] == [False, False]
    assert [each() is not None for each in user.batches] == [False, False]


def test_a_training_that_is_closed_keeps_nothing(training: FactoryTraining) -> None:
    user = user_module(training)
    training.whole_step()
    training.close()
    assert (user.losses[0](), user.batches[0]()) == (None, None)
