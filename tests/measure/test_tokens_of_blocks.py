"""Tokens and padding of the batches of a block, of a training from factories and of a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.measure.child import Child

Project = Callable[..., Path]

# Texts of 1 to 4 words, in batches of four that are padded to 4.
DATA = """
import torch
from torch import nn
from torch.utils.data import DataLoader

def pad(lengths):
    mask = torch.tensor([[int(at < length) for at in range(4)] for length in lengths])
    return {"x": torch.ones(len(lengths), 4), "attention_mask": mask}

def build_model():
    return nn.Linear(4, 3)

def build_dataloader():
    return DataLoader([1, 2, 3, 4] * 50, batch_size=4, collate_fn=pad)

def training_step(model, batch):
    return model(batch["x"]).square().mean()
"""
SCRIPT = (
    DATA
    + """
model = build_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(9):
    for batch in build_dataloader():
        training_step(model, batch).backward()
        optimizer.step()
"""
)


def block(target: dict[str, Any], **more: Any) -> dict[str, Any]:
    command = {"do": "build", "target": target, "overlay": {}, "knob": "", "settings": {}, "device": "cpu"}
    with Child() as child:
        child.ask(command, timeout=60)
        return child.ask({"do": "block", "steps": 6, "untimed": 2, **more}, timeout=60)


@pytest.mark.parametrize(
    ("text", "more"),
    [(DATA, {}), (SCRIPT, {"arguments": [], "scratch": "", "shared": ""})],
    ids=["factories", "script"],
)
def test_each_batch_of_a_block_is_counted_where_that_is_asked_for(
    text: str, more: dict[str, Any], project: Project
) -> None:
    project(**{"train.py": text})
    target = {"file": "train.py", "names": {}, **more}
    counted = block(target, counts_tokens=True)
    assert (counted["samples"], counted["tokens"], counted["padding"]) == (24, 60, 36)
    plain = block(target)
    assert (plain["samples"], plain["tokens"], plain["padding"]) == (24, 0, 0)


def test_one_batch_that_does_not_tell_leaves_the_block_without(project: Project) -> None:
    """The first batch has a mask of the whole, and the rest none."""
    text = DATA.replace("    return {", "    return {'x': torch.ones(len(lengths), 4)} if lengths[0] == 1 else {")
    project(**{"train.py": text})
    counted = block({"file": "train.py", "names": {}}, counts_tokens=True)
    assert (counted["tokens"], counted["padding"]) == (0, 0)
