"""Which biases can go, seen on a model whose source has none any more, and how its optimizer was grouped before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from old_models import ADAM_IN_GROUPS, BIASES, MODEL

from perfaudit.checkpoints.fold import Refused

Project = Callable[..., Path]

NET = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1, bias=False)
        self.other = nn.Conv2d(3, 4, 1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 4, bias=False)
        self.norm = nn.InstanceNorm1d(4)

    def forward(self, x):
        {forward}
        return x.mean((2, 3))


def build_model():
    return {model}


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(8, 3, 4, 4), torch.zeros(8, dtype=torch.long)), batch_size=4)
"""


def training(folder: Path) -> Any:
    from perfaudit.target.names import Target
    from perfaudit.training.factory_training import FactoryTraining

    return FactoryTraining(Target(str(folder / "model.py")), "cpu")


@pytest.mark.parametrize(
    ("forward", "key", "why"),
    [
        ("x = self.bn(self.conv(x).relu())", "conv.bias", "no norm was seen that takes its output directly"),
        ("y = self.conv(x); x = self.bn(y) + y", "conv.bias", "its output goes to more than the norm bn"),
        (
            "x = self.bn(self.conv(x)) + self.bn(self.other(x))",
            "conv.bias",
            "its norm bn takes the output of other too",
        ),
        (
            "x = self.bn(self.conv(x)); x = x + self.norm(self.fc(x.mean((2, 3))))[..., None, None]",
            "fc.bias",
            "its norm norm (InstanceNorm1d) is over another dimension",
        ),
    ],
)
def test_biases_that_cannot_go(project: Project, forward: str, key: str, why: str) -> None:
    from perfaudit.checkpoints.observed_model import observe_model

    found = observe_model(training(project(**{"model.py": NET.format(forward=forward, model="Net()")})))
    assert why in found.unfoldable[key]
    assert key not in found.biases


@pytest.mark.parametrize("model", ["Net()", "nn.DataParallel(Net())", "torch.compile(Net(), backend='eager')"])
def test_a_wrapper_of_the_whole_model_is_looked_through(project: Project, model: str) -> None:
    from perfaudit.checkpoints.observed_model import observe_model

    found = observe_model(
        training(project(**{"model.py": NET.format(forward="x = self.bn(self.conv(x))", model=model)}))
    )
    (fold,) = found.folds
    assert (fold.layer, fold.norm, fold.biases, fold.means) == ("conv", "bn", ("conv.bias",), ("bn.running_mean",))
    assert "conv.weight" in found.shapes and "bn.running_mean" in found.buffers


def test_a_layer_under_two_names_has_two_keys(project: Project) -> None:
    from perfaudit.checkpoints.observed_model import observe_model

    text = NET.format(forward="x = self.again(self.conv(x))", model="Net()")
    text = text.replace("    def forward", "        self.same, self.again = self.conv, self.bn\n\n    def forward")
    (fold,) = observe_model(training(project(**{"model.py": text}))).folds
    assert fold.biases == ("conv.bias", "same.bias")
    assert fold.means == ("bn.running_mean", "again.running_mean")


def test_the_old_groups_are_those_of_the_factory_on_the_model_with_biases(project: Project) -> None:
    from perfaudit.checkpoints.observed_model import observe_model, old_layouts

    trains = training(project(**{"model.py": MODEL + ADAM_IN_GROUPS}))
    (layout,), shapes = old_layouts(trains, observe_model(trains).folds)
    assert (layout.source, layout.counts) == ("build_optimizer()", [14, 6])
    assert layout.groups[0][0] == "stem.0.bias" and set(BIASES) <= set(layout.groups[0])
    assert {key: shapes[key] for key in BIASES} == {key: (width,) for key, width in BIASES.items()}
    assert not set(BIASES) & set(dict(trains.model.named_parameters()))


def test_a_factory_that_groups_by_biases_is_refused(project: Project) -> None:
    from perfaudit.checkpoints.observed_model import observe_model, old_layouts

    by_layer = """

def build_optimizer(model):
    groups = [[p for n, p in model.named_parameters() if n.startswith("stem")]]
    groups += [[p for n, p in model.named_parameters() if not n.startswith("stem")]]
    return torch.optim.SGD([{"params": g} for g in sorted(groups, key=len)[::1 if model.mix.bias is None else -1]], lr=0.1)
"""
    trains = training(project(**{"model.py": MODEL + by_layer}))
    with pytest.raises(
        Refused, match=r"build_optimizer\(\) groups the parameters in another way when layers have biases"
    ):
        old_layouts(trains, observe_model(trains).folds)
