"""A second loader in the place of a training's: the first one goes on where it stopped, and its workers stand still meanwhile."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from perfaudit.target.names import Target
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.factory_training import FactoryTraining
from perfaudit.training.loader_variant import LoaderVariant, LoaderVariants
from perfaudit.training.workers import Workers

PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KEPT = None

def build_model():
    return nn.Linear(4, 3)

def build_dataloader():
    data = TensorDataset(torch.arange(48.0).reshape(12, 4), torch.arange(12) % 3)
    return DataLoader(data, batch_size=2, shuffle=True, num_workers={workers})

def kept_dataloader():
    global KEPT
    KEPT = KEPT or build_dataloader()
    return KEPT
"""
WORKERS = {"num_workers": 1, "prefetch_factor": 2, "persistent_workers": True}
Build = Callable[..., FactoryTraining]


@pytest.fixture
def build(project: Callable[..., Path]) -> Iterator[Build]:
    """`build()` is a training whose loader has as many workers as told."""
    made = []

    def start(workers: int = 0, **names: str) -> FactoryTraining:
        project(**{"t.py": PROGRAM.format(workers=workers)})
        made.append(
            FactoryTraining(Target("t.py", {"model": "build_model", "dataloader": "build_dataloader", **names}), "cpu")
        )
        return made[-1]

    yield start
    for training in made:
        training.close()


def steps(training: FactoryTraining, count: int) -> list[list[float]]:
    """The inputs of the next batches, on each of which a step is made."""
    return [training.whole_step()[0].flatten().tolist() for _ in range(count)]


def test_the_first_loader_goes_on_where_it_stopped(build: Build) -> None:
    alone = steps(build(), 6)
    training = build()
    variant = LoaderVariant(training, {"batch_size": 3})
    own, seen = training.loader, steps(training, 2)
    variant.enter()
    assert training.loader is variant.loader is not own
    others = steps(training, 5)
    assert (training.epoch_batches, len(others[0]), len(training.restart_seconds)) == (4, 12, 2)
    variant.leave()
    assert (training.loader, training.epoch_batches, len(training.restart_seconds)) == (own, 6, 1)
    assert [*seen, *steps(training, 4)] == alone
    variant.close()


def test_a_training_that_a_loader_was_in_goes_on_to_the_bit(build: Build) -> None:
    def parameters(with_variant: bool) -> list[float]:
        training = build()
        steps(training, 2)
        if with_variant:
            variant = LoaderVariant(training, {"batch_size": 3})
            variant.enter()
            variant.leave()
        steps(training, 7)
        return [value for parameter in training.model.parameters() for value in parameter.flatten().tolist()]

    assert parameters(True) == parameters(False)


def test_it_goes_on_itself_where_it_stopped(build: Build) -> None:
    training = build()
    variant = LoaderVariant(training, {"batch_size": 3})
    seen: list[list[float]] = []
    for _ in range(4):  # an epoch, a batch at a time
        variant.enter()
        seen += steps(training, 1)
        variant.leave()
    assert sorted(value for batch in seen for value in batch) == list(map(float, range(48)))


def test_leaving_twice_or_never_having_entered_changes_nothing(build: Build) -> None:
    training = build()
    own, variant = training.loading, LoaderVariant(training, {"batch_size": 3})
    variant.leave()
    variant.enter()
    variant.enter()
    variant.leave()
    variant.leave()
    assert training.loading is own


@pytest.mark.parametrize(
    ("names", "overrides", "why"),
    [
        ({"dataloader": "kept_dataloader"}, WORKERS, "cannot be built with|the same loader"),
        ({"dataloader": "kept_dataloader"}, {}, "gives the same loader each time"),
        ({}, {"batch_size": -1}, "failed"),
    ],
)
def test_what_the_factory_does_not_build_is_refused(
    build: Build, names: dict[str, str], overrides: dict[str, object], why: str
) -> None:
    training = build(**names)
    own, state = training.loading, torch.get_rng_state()
    variant = LoaderVariant(training, dict(overrides))
    with pytest.raises(NotSwappable, match=why):
        variant.enter()
    variant.leave()
    assert training.loading is own
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_of_the_loader_that_is_not_in_place_stand_still(build: Build) -> None:
    def states() -> dict[int, str]:
        pids = [child.pid for child in multiprocessing.active_children() if child.pid is not None]
        return {pid: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}

    def wait_until_still(pids: set[int]) -> None:
        for pid in pids:
            os.waitid(os.P_PID, pid, os.WSTOPPED)

    training = build(workers=1)
    loaders, workers = LoaderVariants(training), Workers("")
    variant = loaders.of(WORKERS)
    assert loaders.of(dict(reversed(WORKERS.items()))) is variant
    steps(training, 1)
    own = set(states())
    workers.give_turn_to("other")
    variant.enter()
    seen = steps(training, 6)
    wait_until_still(own)
    others = set(states()) - own
    assert len(own) == len(others) == 1
    assert {states()[pid] for pid in own} == {"T"}
    variant.leave()
    workers.give_turn_to("")
    wait_until_still(others)
    assert {states()[pid] for pid in others} == {"T"}
    assert len(seen) == len(steps(training, 6))  # and the first one's go on
    workers.close()
    loaders.close()
