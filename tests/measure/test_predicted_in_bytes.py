"""Predictions of tiny trainings, to the byte; what is asked to find a batch size; and what a prediction puts back."""

from __future__ import annotations

import functools
import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_memory import Training, classes, predicted_peak, vectors
from torch import Tensor, nn

from perfaudit.measure.memory import memory_of_step
from perfaudit.measure.memory_prediction import CannotPredict, largest_batch, predicting


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 50), nn.ReLU(), nn.Dropout(0.1), nn.Linear(50, 10))


@pytest.mark.parametrize(
    ("optimizer", "settings", "off"),
    [("SGD", {}, 0), ("SGD", {"momentum": 0.9}, 0), ("AdamW", {"foreach": False}, 0), ("AdamW", {"fused": True}, 0),
     ("AdamW", {"foreach": True}, 8)],
)  # fmt: skip
def test_a_prediction_to_the_byte(optimizer: str, settings: dict[str, Any], off: int) -> None:
    training = Training(small(), vectors, classes, optimizer=optimizer, **settings)
    with predicting(training) as peak_at:
        predicted = {size: peak_at(size) for size in (9, 2, 100)}
    counted = {size: memory_of_step(training, vectors(size)).tensors for size in predicted}
    assert predicted == pytest.approx(counted, abs=off)
    assert predicted_peak(training, 9) == predicted[9]


def test_a_loss_that_is_scaled_and_a_number_in_the_batch() -> None:
    """The scaler reads whether a gradient is infinite, which no prediction knows; the number has no samples."""

    def weighted(model: nn.Module, batch: Any) -> Tensor:
        return classes(model, batch) * batch[2]

    def batch_of(size: int) -> Any:
        return (*vectors(size), torch.tensor(2.0))

    training, scaler = Training(small(), batch_of, weighted, optimizer="SGD"), torch.amp.GradScaler("cpu")

    def step(batch: Any) -> Tensor:
        training.optimizer.zero_grad()
        loss = training.loss(batch)
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()
        return loss

    training.step = step  # type: ignore[method-assign]
    step(batch_of(4))
    predicted = predicted_peak(training, 8)
    assert predicted == pytest.approx(memory_of_step(training, batch_of(8)).tensors, abs=64)
    assert scaler.get_scale() == 65536.0


def test_a_step_that_never_lets_its_gradients_go() -> None:
    """Each prediction is of a step without gradients from the one before."""

    class Adding(Training):
        def step(self, batch: Any) -> Tensor:
            loss = self.loss(batch)
            loss.backward()
            self.optimizer.step()
            return loss

    def training() -> Training:
        return Adding(small(), vectors, classes, optimizer="SGD")

    with predicting(training()) as peak_at:
        both = peak_at(9), peak_at(2)
    assert both == (predicted_peak(training(), 9), predicted_peak(training(), 2))


@pytest.mark.parametrize(
    ("peak_at", "budget", "start", "limit", "sizes", "largest"),
    [
        # A line takes a guess, and one more to confirm it.
        (lambda n: 100 + 10 * n, 1000, 8, 10_000, [8, 16, 32, 64, 128, 90, 91], 90),
        (lambda n: 100 + 10 * n, 1005, 64, 10_000, [64, 128, 90, 91], 90),
        (lambda n: 100 * n, 150, 8, 100, [8, 4, 2, 1], 1),  # nothing has fitted: by halves
        (lambda n: 100 * n, 99, 2, 100, [2, 1], 0),
        # A square: lines run into it from one side, and after two that did not halve the bracket comes its middle.
        (lambda n: n * n, 900, 8, 1000, [8, 16, 32, 29, 30, 31], 30),
        (lambda n: n**6, 10**9 * 2, 1, 100, [1, 2, 4, 8, 16, 32, 64, 33, 34, 49, 35, 36], 35),
        (lambda n: n, 64, 64, 64, [64], 64),
        (lambda n: n, 64, 1000, 32, [32], 32),
        (lambda n: n, 64, 0, 1, [1], 1),
    ],
)
def test_what_is_asked_to_find_a_batch(
    peak_at: Any, budget: int, start: int, limit: int, sizes: list[int], largest: int
) -> None:
    assert largest_batch(peak_at, budget, start, limit) == (largest, [(n, peak_at(n)) for n in sizes])


class Changing(Training):
    """Its step writes to everything that it can reach, and changes what torch does from then on."""

    def __init__(self) -> None:
        super().__init__(small(), vectors, classes, optimizer="SGD")
        self.loader = SimpleNamespace(batch_size=4)
        kept: list[int] = []

        def keep(value: int, more: list[int] = [1]) -> None:  # noqa: B006  # on purpose
            kept.append(value)
            more.append(value)

        def never() -> int:
            return later  # noqa: F821  # an empty cell, on purpose

        later = 1
        del later
        self.never = never
        self.keep, self.kept, self.more = keep, kept, keep.__defaults__[0]  # type: ignore[index]
        self.part = functools.partial(list.append, [1], 7)
        self.fill = functools.partial(lambda into: into.append(1), into=[2])
        self.seen, self.recent, self.counts = {1}, deque([1, 2], maxlen=2), {"a": [1]}
        self.frozen = ([1], frozenset({SimpleNamespace(n=1).__init__}))
        self.other = SimpleNamespace(of=SimpleNamespace(n=1))
        self.bound = SimpleNamespace(n=[1]).n.append
        self.method = Counter().add

    def state(self) -> Any:
        return (
            list(self.kept), list(self.more), list(self.part.args[0]), list(self.fill.keywords["into"]), set(self.seen),
            list(self.recent), self.recent.maxlen, {k: list(v) for k, v in self.counts.items()}, list(self.frozen[0]),
            self.other.of.n, self.method.__self__.n,
        )  # fmt: skip

    def step(self, batch: Any) -> Tensor:
        torch.set_grad_enabled(True)
        self.keep(3)
        self.part()
        self.fill()
        self.seen |= {2}
        self.seen.discard(1)
        self.recent.append(3)
        self.counts["a"].append(2)
        self.counts["b"] = [3]
        self.frozen[0].append(2)
        self.other.of.n += 1
        self.method()
        random.random()
        torch.rand(1)
        loss = super().step(batch)
        torch.set_grad_enabled(False)
        torch.set_autocast_cache_enabled(False)
        return loss


class Counter:
    n = 0

    def add(self) -> None:
        self.n += 1


def test_everything_within_reach_is_put_back() -> None:
    import numpy

    training = Changing()
    for parameter in training.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    gradients = [p.grad for p in training.model.parameters()]
    before = training.state()
    training.batch_of = lambda size: (numpy.random.rand(1), vectors(size))[1]
    batch = training.fixed_batch()
    training.fixed_batch = lambda: batch  # type: ignore[method-assign]
    streams = random.getstate(), torch.get_rng_state(), numpy.random.get_state()[2]
    try:
        assert predicted_peak(training, 9) > 0
        assert torch.is_grad_enabled() and torch.is_autocast_cache_enabled()
    finally:
        torch.set_grad_enabled(True)
        torch.set_autocast_cache_enabled(True)
    assert training.state() == before
    assert all(p.grad is kept for p, kept in zip(training.model.parameters(), gradients, strict=True))
    assert (random.getstate(), numpy.random.get_state()[2]) == (streams[0], streams[2])
    assert torch.equal(torch.get_rng_state(), streams[1])
    training.step(vectors(4))
    torch.set_grad_enabled(True)
    torch.set_autocast_cache_enabled(True)
    assert training.state() != before


def refused(training: Any) -> str:
    with pytest.raises(CannotPredict) as why:
        predicted_peak(training, 8)
    return str(why.value)


def raises(error: Exception) -> Training:
    training = Training(small(), vectors, classes)

    def step(batch: Any) -> Tensor:
        raise error

    training.step = step  # type: ignore[method-assign]
    return training


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("first\nsecond"), "the step does not run without data: ValueError: first"),
        (ValueError("  "), "the step does not run without data: ValueError: no message"),
    ],
)
def test_what_the_step_raises_is_said_in_a_line(error: Exception, words: str) -> None:
    assert refused(raises(error)) == words


def test_a_batch_beside_the_loader_s_size() -> None:
    training: Any = Training(small(), vectors, classes, optimizer="SGD")
    for size in (3, 4, 5, None):  # the batch has 4 samples; the last one of an epoch may be smaller
        training.loader = SimpleNamespace(batch_size=size)
        if size == 3:
            assert refused(training) == "the batch's first dimension is 4, and the loader's batch size 3"
        else:
            assert predicted_peak(training, 8) > 0


def test_models_that_are_compiled_are_refused_by_name() -> None:
    class OptimizedModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    assert refused(Training(OptimizedModule(), vectors, classes)) == (
        "the model is compiled, and what it allocates is decided when it runs"
    )
    scripted = torch.jit.script(nn.Linear(16, 10))
    assert refused(Training(nn.Sequential(scripted), vectors, classes)) == (
        "RecursiveScriptModule is compiled, and what it allocates is decided when it runs"
    )
