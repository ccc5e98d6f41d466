"""The loop that is measured waits for copies where the user's own text does, whatever the loader pins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.measure.gather_facts import facts_of
from perfaudit.target.copies import copies_without_waiting
from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining


def loop(*lines: str) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"model = model.to(device)\nfor x, y in loader:\n{body}    model(x, y).backward()\n"


@pytest.mark.parametrize(
    ("text", "step", "without"),
    [
        ("", "", None),
        ("def broken(", "", None),
        (loop(), "", None),  # nothing is copied there
        (loop("x = x.to(device)"), "", False),
        (loop("x = x.to(device, non_blocking=True)"), "", True),
        (loop("x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)"), "", True),
        (loop("x, y = x.cuda(non_blocking=True), y.cuda()"), "", False),  # one of them is waited for
        (loop("x = x.to('cuda', None, True)", "y = y.cuda(0, True)"), "", True),
        (loop("x = x.to(device, non_blocking=False)"), "", False),
        (loop("x = x.to(device, non_blocking=args.fast)"), "", False),  # who knows
        (loop("x = x.to(device, non_blocking=True)", "z = x.to(torch.float16)", "w = x.to(y)"), "", True),
        (loop("x = x.to(device, non_blocking=True)", "print(model(x).to(device))", "z = x.to('cpu')"), "", True),
        (loop("x = x.float()", "z = x.to(device, non_blocking=True)", "u = y['a'][0].to(device)"), "", False),
        # a loop that only evaluates says nothing of the one that trains
        (loop("x = x.to(device, non_blocking=True)") + "for x, y in val:\n    x = x.to(device)\n", "", True),
        (loop("x = x.to(device)") + "for x, y in val:\n    x = x.to(device, non_blocking=True)\n", "", False),
        # a helper of the loop
        (loop("x = move(x)") + "def move(t):\n    return t.to(device, non_blocking=True)\n", "", True),
        (loop("b = {k: v.cuda(non_blocking=True) for k, v in x.items()}"), "", True),
        (loop("b = {k: v.cuda() for k, v in x.items()}"), "", False),
        ("while True:\n    x = next(batches)\n    a = x['i'].to(device)\n    f(a).backward()\n", "", False),
        # optimizer state that is moved elsewhere
        (
            loop("x = x.cuda(non_blocking=True)") + "for s in state.values():\n    s['m'] = s['m'].to(device)\n",
            "",
            True,
        ),
        (
            "def training_step(model, batch):\n    return model(batch.to(device, non_blocking=True))\n",
            "training_step",
            True,
        ),
        (
            "def training_step(model, batch):\n    model.to(device)\n    x = batch[0].to(device)\n",
            "training_step",
            False,
        ),
    ],
)
def test_what_the_text_says(text: str, step: str, without: bool) -> None:
    assert copies_without_waiting(text, step) is without


TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Linear(8, 2)


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), batch_size=8, pin_memory={pinned})


if __name__ == "__main__":
    for x, y in build_dataloader():
        x, y = {x}, y.to("cuda", non_blocking=True)
        nn.functional.cross_entropy(build_model()(x), y).backward()
"""


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize(("x", "without"), [('x.to("cuda")', False), ("x.cuda(non_blocking=True)", True)])
def test_a_training_copies_as_the_users_loop_does(
    project: Callable[..., Path], pinned: bool, x: str, without: bool
) -> None:
    project(**{"train.py": TRAIN.format(pinned=pinned, x=x)})
    training: Any = FactoryTraining(Target("train.py"), "cpu")
    assert (training.non_blocking, facts_of(training).non_blocking) == (without, without)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
@pytest.mark.parametrize(("step", "without"), [("batch[0].to(device)", False), ("batch", True)])
def test_the_file_of_the_step_decides_and_then_that_of_the_target(
    project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, step: str, without: bool
) -> None:
    folder = project(
        **{
            "train.py": f"from steps_{without} import training_step\n"
            + TRAIN.format(pinned=True, x="x.cuda(non_blocking=True)"),
            f"steps_{without}.py": f"def training_step(model, batch):\n    x = {step}\n    return model(x).sum()\n",
        }
    )
    monkeypatch.syspath_prepend(str(folder))
    assert FactoryTraining(Target("train.py"), "cpu").non_blocking is without


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
def test_a_patched_text_is_what_counts(project: Callable[..., Path]) -> None:
    """So a race of patched source measures what is handed over."""
    from perfaudit.target import overlay

    folder = project(**{"train.py": TRAIN.format(pinned=True, x='x.to("cuda")')})
    patched = TRAIN.format(pinned=True, x='x.to("cuda", non_blocking=True)')
    overlay._show(str(folder / "train.py"), patched)
    assert FactoryTraining(Target("train.py"), "cpu").non_blocking
