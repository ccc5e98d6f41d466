"""A model whose biases before norms come and go, what it is trained with, and a checkpoint of it after a few steps."""

from __future__ import annotations

import copy
from typing import Any

# A plain conv, a transposed one, a linear layer behind another order of registration, a norm without running statistics,
# an instance norm, and two layers that keep their biases.
MODEL = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BIAS = False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, bias=BIAS), nn.BatchNorm2d(6), nn.ReLU())
        self.up_norm = nn.InstanceNorm2d(5, affine=True, track_running_stats=True)
        self.up = nn.ConvTranspose2d(6, 5, 2, stride=2, bias=BIAS)
        self.mix = nn.Conv2d(5, 4, 1, bias=BIAS)
        self.mix_norm = nn.BatchNorm2d(4, track_running_stats=False)
        self.plain = nn.Conv2d(4, 4, 3, padding=1)
        self.hidden = nn.Linear(4 * 256, 7, bias=BIAS)
        self.hidden_norm = nn.BatchNorm1d(7, momentum=None)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        x = self.up_norm(self.up(self.stem(x))).relu()
        x = self.plain(self.mix_norm(self.mix(x)).relu()).relu()
        return self.head(self.hidden_norm(self.hidden(x.flatten(1))).relu())


def build_model():
    return Net()


def batches():
    torch.manual_seed(7)
    return TensorDataset(torch.randn(32, 3, 8, 8) + 1, torch.randint(0, 3, (32,)))


def build_dataloader():
    return DataLoader(batches(), batch_size=8)
"""

SGD = """

def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
"""

ADAM_IN_GROUPS = """

def build_optimizer(model):
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    return torch.optim.AdamW([{"params": rest, "weight_decay": 0.0}, {"params": decay}], lr=1e-3, foreach=True)
"""

BIASES = {"stem.0.bias": 6, "up.bias": 5, "mix.bias": 4, "hidden.bias": 7}


def names_of(text: str, bias: bool) -> dict[str, Any]:
    """What a program defines, with or without biases before its norms."""
    names: dict[str, Any] = {}
    exec(text.replace("BIAS = False", f"BIAS = {bias}"), names)
    return names


def trained(text: str, steps: int = 4) -> tuple[Any, Any]:
    """The old model and its optimizer after a few steps, its biases far from zero, in training mode."""
    import torch

    names = names_of(text, bias=True)
    torch.manual_seed(3)
    model = names["build_model"]()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key in BIASES:
                parameter.normal_(std=0.5)
    factory = names.get("build_optimizer", lambda m: torch.optim.Adam(m.parameters(), lr=1e-3))
    optimizer = factory(model)
    for _ in range(steps):
        for batch in names["build_dataloader"]():
            step(model, optimizer, batch)
    return model, optimizer


def step(model: Any, optimizer: Any, batch: Any) -> None:
    """One training step."""
    import torch

    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


def outputs(model: Any, text: str = MODEL) -> Any:
    """What a model gives in evaluation mode, computed in float64; the model itself stays as it is."""
    import torch

    with torch.no_grad():
        inputs = names_of(text, bias=False)["batches"]().tensors[0]
        return copy.deepcopy(model).double().eval()(inputs.double())


def prefixed(state: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {prefix + key: value for key, value in state.items()}
