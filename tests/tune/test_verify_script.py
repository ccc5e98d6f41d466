"""A patch of a script that draws other random numbers is checked from the parameters and with the batches of the user's code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.knobs._script_start import started
from perfaudit.measure.child import Child
from perfaudit.measure.lab import ChildLab, build_command
from perfaudit.measure.ledger import Variant
from perfaudit.tune.same_start import BEGAN_ALIKE
from perfaudit.tune.tolerance import Curve, Reference, curve_of
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
    reference = Reference(lambda command: None, lambda variant: 0, steps=6, is_of_script=True)
    with Verifier("base", {"patch": ("rounding", "rng", "checkpoint")}, reference) as verifier:
        lab = ChildLab(target, "cpu", fresh=True, check=verifier.check, start_of=verifier.start_of)
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
    reference = Reference(lambda command: None, lambda variant: 0, steps=6, is_of_script=True)
    draws = Variant("draws", "", {}, {"train.py": TRAIN.replace("optimizer = ", "torch.rand(1)\noptimizer = ")})
    most = 1 << 30
    promised = {"right": changes, "wrong": changes, "draws": ()}
    with Verifier("base", promised, reference, memory_budget=most) as verifier:
        lab = ChildLab(target, "cpu", fresh=True, check=verifier.check, start_of=verifier.start_of)
        assert [lab.examine(variant) for variant in (Variant("base", "", {}), without)] == ["", ""]
        said = verifier.said["right"]
        assert said.startswith("6 steps from one seed") and "the gradients of the first step agree within" in said
        assert BEGAN_ALIKE in said
        assert 0 < verifier.peaks["right"] <= verifier.peaks["base"]
        assert "more than the promised change (rounding)" in lab.examine(wrong)
        assert "before its first step, other random numbers are drawn than in your code" in lab.examine(draws)


DEEP = """
import torch
from torch import nn

torch.manual_seed(1)
layers = [nn.Conv2d(3, 32, 3, padding=1)]
for at in range(12):
    layers += [nn.Conv2d(32, 32, 3, padding=1, groups=32, stride=1 + (at % 3 == 0)), nn.BatchNorm2d(32), nn.ReLU()]
    layers += [nn.Conv2d(32, 32, 1), nn.BatchNorm2d(32), nn.ReLU()]
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters())
for step in range(40):
    x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 3, (4,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
LAST = "optimizer = torch.optim.Adam(model.parameters())"
WRONG = {
    "scaled": ("model(x), y)", "model(x), y) * 1.01"),
    "biased": ("loss.backward()", "(loss + 1e-3 * model[-1].weight.square().sum()).backward()"),
    "faster": ("model.parameters())", "model.parameters(), lr=1.002e-3)"),
}


@pytest.mark.slow
def test_what_roundings_do_to_a_script_is_told_from_what_a_wrong_patch_does(project: Callable[..., Path]) -> None:
    """Depthwise convolutions and norms of few samples: another layout moves the gradients many times the least tolerance."""
    project(**{"train.py": DEEP})
    target = {"file": "train.py", "names": {}, "arguments": [], "scratch": "", "shared": ""}

    def ask(variant: Variant, command: dict[str, Any]) -> dict[str, Any]:
        with Child() as child:
            child.ask(build_command(target, variant, "cpu"), 60)
            return child.ask(command, 60)

    def losses(command: dict[str, Any]) -> Curve | None:
        if "build_seed" in command:
            return None
        return curve_of(ask(started(Variant("again", "", {}), command.get("nudge", 0.0)), {**command, "nudge": 0.0}))

    def doubles(variant: Variant, command: dict[str, Any]) -> dict[str, Any]:
        return ask(started(variant, command["nudge"], doubles=True), command)

    texts = {"layout": DEEP.replace(LAST, f"model.to(memory_format=torch.channels_last)\n{LAST}")}
    texts |= {name: DEEP.replace(*change) for name, change in WRONG.items()}
    reference = Reference(losses, lambda variant: 0, steps=4, is_of_script=True, ask_of=doubles)
    with Verifier("base", dict.fromkeys(texts, ("rounding",)), reference) as verifier:
        lab = ChildLab(target, "cpu", check=verifier.check)
        assert lab.examine(Variant("base", "", {})) == ""
        refused = {name: lab.examine(Variant(name, "", {}, {"train.py": text})) for name, text in texts.items()}
    assert refused.pop("layout") == ""
    assert "in double precision losses, gradients and updates of 1 step agree within" in verifier.said["layout"]
    assert all(why.startswith("more than the promised change") for why in refused.values()), refused
