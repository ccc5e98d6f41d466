"""Averages that a script keeps by itself are found by their shapes, however it holds them, and nothing else is."""

from __future__ import annotations

import copy
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


def kept_in(way: str, model: Mine) -> Any:
    if way == "module":
        return copy.deepcopy(model)
    if way == "dict":
        return {name: p.detach().clone() for name, p in model.named_parameters()}
    return [value.clone() for value in model.state_dict().values()]


@pytest.mark.parametrize("way", ["module", "dict", "list", "none"])
def test_how_far_an_average_has_moved(way: str) -> None:
    model = Mine()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = kept_in(way, model) if way != "none" else None
    gradients = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    other = [torch.zeros(13), torch.zeros(11)]  # of other shapes
    training = SimpleNamespace(optimizers=[optimizer], first_gradients=gradients)
    averages = Averages(training)
    with torch.no_grad():
        for tensor in [*model.parameters(), *gradients.values(), *other]:
            tensor.add_(1.0)
        if kept is not None:
            first = next(kept.parameters()) if way == "module" else (list(kept.values()) if way == "dict" else kept)[0]
            first.add_(2.0)
    assert averages.moved() == (pytest.approx([2.0 * 143, 2.0 * 143**0.5], rel=1e-5) if kept is not None else [])
