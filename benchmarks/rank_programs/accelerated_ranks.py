"""A training on ranks that Accelerate prepares; the second one loads for longer: `slow`, or not: `balanced`."""

from __future__ import annotations

import os
import sys
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, SAMPLES, BATCH = 256, 8192, 32


class Pictures(Dataset[torch.Tensor]):
    """Random rows, each of which takes a moment to load on the second rank."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((WIDTH,), float(index % 7))


def main(mode: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    is_slow = mode == "slow" and accelerator.process_index == 1
    loader = DataLoader(Pictures(0.0003 if is_slow else 0.0), batch_size=BATCH)
    layers = [nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(4)]
    model = nn.Sequential(*layers)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
    for _ in range(20):
        for rows in loader:
            loss = model(rows).square().mean()
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1] if len(sys.argv) > 1 else "slow")
