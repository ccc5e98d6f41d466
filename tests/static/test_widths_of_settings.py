"""PA304 of models whose widths stand in settings files."""

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
import yaml
from data import TensorDataset, images
from net import Net

def main():
    with open("train.yaml") as file:
        cfg = yaml.safe_load(file)
    model = Net(cfg).cuda()
    loader = torch.utils.data.DataLoader(TensorDataset(images), 8, num_workers=4, pin_memory=True)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""
NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        levels = cfg["model"]["topology"]
        self.inner = nn.Conv2d(levels[0], levels[1], 3)
        self.outer = nn.Conv2d(levels[1], levels[2], 3)
"""
ATTENTION = """
from torch import nn

class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(cfg.model.hidden_dim, 8)
"""


@pytest.mark.parametrize(
    ("net", "files", "is_told"),
    [
        (NET, {"train.yaml": "model:\n  topology: [64, 128, 256, 512,]  # channels\n"}, True),
        (NET, {"train.json": '{"model": {\n"topology": [64, 128, 256, 512]\n}}'}, True),
        (NET, {"train.yaml": "model:\n  topology: [8, 16, 32, 64]\n"}, False),
        (NET, {"train.yaml": "model:\n  topology: [64, 100, 512]\n"}, False),  # whatever that is
        (NET, {"train.yaml": "model:\n  image_sizes: [64, 128, 256, 512]\n"}, False),
        (NET.replace("topology", "image_sizes"), {"train.yaml": "model:\n  image_sizes: [64, 128, 256, 512]\n"}, False),
        (NET, {"train.yaml": "model:\n  levels_of_another: [64, 128, 256, 512]\n"}, False),
        (NET, {"a.yaml": "topology: [64, 128, 256, 512]\n", "b.yaml": "topology: [8, 16, 32]\n"}, False),
        (NET.replace("topology", "milestones"), {"train.yaml": "milestones: [100, 200, 400]\n"}, False),
        (NET.replace("topology", "resolutions"), {"train.yaml": "resolutions: [64, 128, 256]\n"}, False),
        (NET.replace("topology", "lr_steps"), {"train.yaml": "lr_steps: [300, 300, 600]\n"}, False),
        (NET.replace("topology", "bucket_boundaries"), {"train.yaml": "bucket_boundaries: [128, 256, 512]\n"}, False),
        (NET.replace("topology", "hidden_sizes"), {"train.yaml": "hidden_sizes: [8, 16, 32]\n"}, False),
        (NET.replace("topology", "hidden_sizes"), {"train.yaml": "hidden_sizes: [128, 256, 512]\n"}, True),
        (ATTENTION.replace("hidden_dim", "max_features"), {"train.yaml": "max_features: 5000\n"}, False),
        (ATTENTION.replace("hidden_dim", "log_features_every"), {"train.yaml": "log_features_every: 500\n"}, False),
        (ATTENTION.replace("hidden_dim", "input_dim"), {"train.yaml": "input_dim: 784\n"}, False),
        (ATTENTION, {"train.yaml": "hidden_dim: 512\ninput_dim: 16\n"}, True),
        (ATTENTION, {"train.yaml": "model:\n  hidden_dim: 512\n"}, True),
        (ATTENTION, {"train.toml": "[model]\nhidden_dim = 512\n"}, True),
        (ATTENTION, {"train.yaml": "model:\n  hidden_dim: 128\n"}, False),
        (ATTENTION, {"train.yaml": "model:\n  hidden_dim: ${width}\n"}, False),
        (ATTENTION, {"a.yaml": "hidden_dim: 512\n", "b.yaml": "hidden_dim: 64\n"}, False),
        (ATTENTION, {"a.yaml": "hidden_dim: 512\n", "outputs/b.yaml": "hidden_dim: 64\n"}, True),  # what a run left
        (ATTENTION, {"train.yaml": "hidden_channels: 512\n"}, False),  # which nothing reads
        (ATTENTION, {}, False),
        (ATTENTION.replace("TransformerEncoderLayer", "Embedding"), {"train.yaml": "hidden_dim: 512\n"}, False),
    ],
)
def test_widths_that_a_script_reads(project: Folder, net: str, files: dict[str, str], *, is_told: bool) -> None:
    folder = project(**{"train.py": SCRIPT, "net.py": net, **files})
    path = folder / "train.py"
    source = Source(
        "train.py", path.read_text(), Project(sorted(folder.glob("*.py")), folders=[folder]).seen_from(path)
    )
    assert bool(list(run_checks(source, all_rules(), frozenset(["PA304"])))) == is_told
