"""PA104 where nothing but settings files says that the device is CUDA's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

Folder = Callable[..., Path]

SCRIPT = """
import torch
from configuration import read

def main(cfg):
    model = Net().to(cfg.device)
    loader = torch.utils.data.DataLoader(Images(cfg), batch_size=8, pin_memory=True, num_workers=4)
    for images in loader:
        images = images.to(cfg.device)
        loss = model(images).mean()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main(read())
"""


@pytest.mark.parametrize(
    ("says", "is_told"),
    [
        ({"train.json": '{"train": {"lr": 1}, "device": "cuda"}'}, True),
        ({"a.yaml": "device: cuda:0\n", "b.yaml": "device: cuda\n"}, True),
        ({"a.yaml": "device: cuda\n", "b.yaml": "device: cpu\n"}, False),
        ({"a.yaml": "device: cuda\n", "b.yaml": "device: mps\n"}, False),
        ({"a.yaml": "device: ${where}\n"}, False),
        ({"a.yaml": "lr: 1\n"}, False),
        ({}, False),
    ],
)
def test_a_device_of_settings_files(project: Folder, says: dict[str, str], *, is_told: bool) -> None:
    folder = project(**{"train.py": SCRIPT, **says})
    path = folder / "train.py"
    source = Source("train.py", path.read_text(), Project([path], folders=[folder]).seen_from(path))
    assert bool(list(run_checks(source, all_rules(), frozenset(["PA104"])))) == is_told
