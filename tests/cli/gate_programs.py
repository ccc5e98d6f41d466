"""Small files that tests of the gate put into repositories."""

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
