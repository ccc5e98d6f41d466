"""Small files that tests of the gate put into repositories, and git for these."""

from __future__ import annotations

import subprocess

SILENT = "import torch\nx = torch.zeros(3)\n"
SLOW = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"

TARGET = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Linear(8, 2)


def build_dataloader():
    return DataLoader(TensorDataset(torch.zeros(32, 8), torch.zeros(32, dtype=torch.long)), batch_size=8)
"""


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def commit(message: str) -> None:
    git("add", "--all")
    git("commit", "--quiet", "-m", message)
