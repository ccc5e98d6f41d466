"""PA701 where another file hands in how many GPUs there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, gpus):
        super().__init__()
        self.gpus = gpus
        self.main = nn.Linear(64, 64)

    def forward(self, x):
        return nn.parallel.data_parallel(self.main, x, range(self.gpus))
"""
SCRIPT = """
import argparse
from model import Net

parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int, default=1)
options = parser.parse_args()
gpus = int(options.gpus)
net = Net(gpus)
loss = net(x).sum()
loss.backward()
"""


@pytest.mark.parametrize(
    ("script", "severity"),
    [
        (SCRIPT, "hint"),
        (SCRIPT.replace("default=1", "default=4"), "warning"),
        (SCRIPT.replace("Net(gpus)", "Net(torch.cuda.device_count())"), "warning"),
    ],
)
def test_one_gpu_unless_an_option_says_otherwise_is_a_hint(tmp_path: Path, script: str, severity: str) -> None:
    for name, text in {"model.py": MODEL, "script.py": script}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("model.py", MODEL, project.seen_from(tmp_path / "model.py"))
    assert [found.severity for found in run_checks(source, all_rules(), frozenset(["PA701"]))] == [severity]
