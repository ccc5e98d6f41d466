"""PA104 in a program that makes pinned tensors of its own: that says nothing about its loaders."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

TRAIN = """
import torch
from buf import buffer
from loader import make

def train(model, loader, optimizer):
    kept = buffer()
    for batch in loader:
        model(batch.to("cuda")).backward()
        optimizer.step()
"""
LOADER = """
from torch.utils.data import DataLoader

def make(ds, **kwargs):
    return DataLoader(ds, batch_size=8, **kwargs)
"""
GIVEN = """
from torch.utils.data import DataLoader
import torch

def make(ds, pin_memory):
    kept = torch.empty(3, 4, pin_memory=True)
    return DataLoader(ds, batch_size=8, pin_memory=pin_memory)
"""
BUFFER = """
import torch

def buffer():
    return torch.empty(3, 4, pin_memory=True)
"""


@pytest.mark.parametrize(
    ("loader", "buffer", "is_told"),
    [
        (LOADER, BUFFER, False),
        (LOADER, BUFFER.replace("(3, 4,", "(\n        (3, int(f(4))),\n       "), False),
        (LOADER, BUFFER.replace("torch.empty(3, 4,", "kept.new_zeros((3, 4),"), False),
        (LOADER, BUFFER.replace("import torch", "from torch import empty").replace("torch.empty", "empty"), False),
        (
            LOADER,
            BUFFER.replace("r()", "r(pin_memory=True)").replace("4, pin_memory=True", "pin_memory=pin_memory"),
            False,
        ),
        (GIVEN, BUFFER, False),
        (LOADER, BUFFER + "\nloader_options = dict(pin_memory=True)\n", True),
        (LOADER + "\npairs = make(images, pin_memory=True)\n", BUFFER, True),
        (GIVEN.replace("pin_memory):", "pin_memory=True):"), BUFFER, True),
        (LOADER + "\npairs = make(images, pin_memory=True)\n", BUFFER.replace("True", "False"), True),
    ],
)
def test_tensors_that_are_pinned_pin_no_loader(tmp_path: Path, loader: str, buffer: str, is_told: bool) -> None:
    for name, text in {"train.py": TRAIN, "loader.py": loader, "buf.py": buffer}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("train.py", TRAIN, project.seen_from(tmp_path / "train.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told
