"""Averages that a script keeps by itself are found by their shapes, however it holds them, and nothing else is."""

from __future__ import annotations

import copy
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from perfaudit.training.script_average import Averages


class Mine(nn.Module):
    """Of shapes that no other test has."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm = nn.Linear(13, 11), nn.BatchNorm1d(11)


class Holder(nn.Module):
    """A model that has its average as a part, as a LightningModule or an `EMA(model)` does."""

    def __init__(self, net: nn.Module, ema: nn.Module) -> None:
        super().__init__()
        self.net, self.ema = net, ema


class InBuffers(nn.Module):
    """An average in buffers, with its decay and a count beside it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.register_buffer("decay", torch.tensor(0.9))
        for name, p in model.named_parameters():
            self.register_buffer(name.replace(".", ""), p.detach().clone())


class Raising(dict[str, Any]):
    """Loads what it has when it is asked for it, or raises."""

    def __len__(self) -> int:
        raise AssertionError("its length was asked for")

    def values(self) -> Any:
        raise AssertionError("its values were asked for")


def kept_in(way: str, model: Mine) -> Any:
    if way == "dict":
        return {name: p.detach().clone() for name, p in model.named_parameters()}
    if way == "list":
        return [value.clone() for value in model.state_dict().values()]
    if way == "buffers":
        return InBuffers(model)
    return Holder(model, copy.deepcopy(model)) if way in ("part", "given") else copy.deepcopy(model)


def training_of(model: nn.Module, **more: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **more)
    return SimpleNamespace(optimizers=[optimizer], first_gradients={})


@pytest.mark.parametrize("way", ["module", "part", "given", "dict", "list", "buffers", "none"])
def test_how_far_an_average_has_moved(way: str) -> None:
    model = Mine()
    kept = kept_in(way, model) if way != "none" else None
    training = training_of(kept if way == "given" else model)  # all of it is given to the optimizer
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    lists = [list(model.parameters()), [p.data for p in model.parameters()]]
    averages = Averages(training)
    shadow = {"part": "ema", "given": "ema"}.get(way)
    average = getattr(kept, shadow) if shadow else kept
    with torch.no_grad():
        for tensor in [*lists[0], *(p.grad for p in lists[0] if p.grad is not None)]:
            tensor.add_(1.0)
        first: Any = None
        if way in ("dict", "list"):
            first = next(iter(average.values() if way == "dict" else average))
        elif kept is not None:
            first = next(each for each in average.state_dict().values() if each.dim())
        if first is not None:
            first.add_(2.0)
    moved = [row for row in averages.take_movements(4) if row[2]]
    assert averages.take_movements(4) == []
    if kept is None:
        assert moved == []
        return
    ((name, is_trained, *sums, doubt, norm, one, two),) = moved
    assert (name, is_trained) == ("oneweight" if way == "buffers" else "one.weight", True)
    assert sums == pytest.approx([2.0 * 143, 2.0 * 143**0.5], rel=1e-5)
    assert 0 < doubt < 1e-3 and 0 < norm < 1e-4 and one and two


def test_what_is_no_average() -> None:
    """A tensor without numbers, a dict that raises when it is read, and norms of the model itself."""
    model = Mine()
    training = training_of(model)
    others = [Raising(a=1), OrderedDict(one=torch.zeros(13, device="meta"))]
    meta = [torch.zeros(p.shape, device="meta") for p in model.parameters()]
    averages = Averages(training)
    model.norm(torch.randn(4, 11))  # moves the running means
    assert [row for row in averages.take_movements(4) if row[2]] == [] and others and meta


def test_an_order_that_does_not_depend_on_the_process() -> None:
    model = Mine()
    kept = [{name: p.detach().clone() for name, p in model.named_parameters()} for _ in range(3)]
    found = []
    for order in (kept, kept[::-1]):
        averages = Averages(training_of(model))
        with torch.no_grad():
            for number, each in enumerate(order):
                for tensor in each.values():
                    tensor.copy_(number)
        found.append([row[:4] for row in averages.take_movements(4)])
        with torch.no_grad():
            for each in kept:
                for name, p in model.named_parameters():
                    each[name].copy_(p)
    assert found[0] == found[1] and len(found[0]) == 12
