"""A patch of a script that draws other random numbers is checked from the parameters and with the batches of the user's code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Variant
from perfaudit.tune.same_start import BEGAN_ALIKE
from perfaudit.tune.tolerance import Reference
from perfaudit.tune.verify import Verifier

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
data = TensorDataset(torch.randn(64, 3, 6, 6), torch.randint(0, 3, (64,)))
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 16, 3)
)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(9):
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


FREEZE = "nn.init.zeros_(model[0].bias)\nmodel[1].eval()\noptimizer = torch.optim.SGD(model.parameters(), lr=1e-6)"
FROZEN = TRAIN.replace("optimizer = torch.optim.Adam(model.parameters())", FREEZE)


def without_bias(text: str) -> str:
    return text.replace("3, 8, 3)", "3, 8, 3, bias=False)").replace("nn.init.zeros_(model[0].bias)", "")


@pytest.mark.slow
def test_biases_before_a_norm_that_is_frozen_are_trained(project: Callable[..., Path]) -> None:
    """They begin at zero and move slowly, so the losses are nearly those without them."""
    project(**{"train.py": FROZEN})
    target = {"file": "train.py", "names": {}, "arguments": [], "scratch": "", "shared": ""}
    reference = Reference(lambda command: None, lambda variant: 0, steps=6, is_of_script=True, tells_memory=True)
    with Verifier("base", {"patch": ("rounding", "rng", "checkpoint")}, reference) as verifier:
        lab = ChildLab(target, "cpu", check=verifier.check, start_of=verifier.start_of)
        assert lab.examine(Variant("base", "", {})) == ""
        why = lab.examine(Variant("patch", "", {}, {"train.py": without_bias(FROZEN)}))
    assert why.startswith("the patch leaves out 0.bias, which is trained: its first gradient is ")


@pytest.mark.slow
def test_biases_of_a_script_that_shuffles(project: Callable[..., Path]) -> None:
    project(**{"train.py": TRAIN})
    target = {"file": "train.py", "names": {}, "arguments": [], "scratch": "", "shared": ""}
    changes = ("rounding", "rng", "checkpoint")
    without = Variant("right", "", {}, {"train.py": TRAIN.replace("3, 8, 3)", "3, 8, 3, bias=False)")})
    wrong = Variant(
        "wrong", "", {}, {"train.py": without.overlay["train.py"].replace("8 * 16, 3)", "8 * 16, 3, bias=False)")}
    )
    reference = Reference(lambda command: None, lambda variant: 0, steps=6, is_of_script=True, tells_memory=True)
    draws = Variant("draws", "", {}, {"train.py": TRAIN.replace("optimizer = ", "torch.rand(1)\noptimizer = ")})
    most = 1 << 30
    promised = {"right": changes, "wrong": changes, "draws": ()}
    with Verifier("base", promised, reference, memory_budget=most) as verifier:
        lab = ChildLab(target, "cpu", check=verifier.check, start_of=verifier.start_of)
        assert [lab.examine(variant) for variant in (Variant("base", "", {}), without)] == ["", ""]
        said = verifier.said["right"]
        assert said.startswith("6 steps from one seed") and "the gradients of the first step agree within" in said
        assert BEGAN_ALIKE in said
        assert 0 < verifier.peaks["right"] <= verifier.peaks["base"]
        assert "more than the promised change (rounding)" in lab.examine(wrong)
        assert "before its first step, other random numbers are drawn than in your code" in lab.examine(draws)
