"""Which blocks say how long they take without waiting for cores: not those whose own loader workers hold some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.measure.child import Child

DATA = """
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)

def build_model():
    return nn.Linear(4, 3)

def build_dataloader():
    return DataLoader(torch.ones(400, 4), batch_size=4, num_workers=WORKERS, persistent_workers=WORKERS > 0)

def training_step(model, batch):
    return model(batch).square().mean()
"""


@pytest.mark.parametrize(("workers", "is_told"), [(0, True), (1, False)])
def test_a_block_beside_workers_of_its_own_is_of_the_wall(
    workers: int, *, is_told: bool, project: Callable[..., Path]
) -> None:
    project(**{"train.py": DATA.replace("WORKERS", str(workers))})
    build = {"do": "build", "target": {"file": "train.py", "names": {}}, "overlay": {}, "knob": "", "settings": {}}
    with Child() as child:
        child.ask({**build, "device": "cpu"}, timeout=60)
        seen = child.ask({"do": "block", "steps": 6, "untimed": 2}, timeout=60)
    assert (seen["own"] is not None) is is_told
