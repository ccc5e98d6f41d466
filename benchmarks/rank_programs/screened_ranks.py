"""A training on ranks of many small layers, whose optimizer updates one parameter after the other.

With an argument, the second rank fails where a fused update is in place: raise, hang.
"""

from __future__ import annotations

import os
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH, STEPS = 48, 60, 8, 20000


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            features = torch.relu(layer(features))
        return features


def fail(how: str) -> None:
    if how == "raise":
        raise ValueError("rank 1 has no fused update")
    if how == "hang":
        threading.Event().wait()


def main(mode: str) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        loss = (model(torch.randn(BATCH, WIDTH)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if dist.get_rank() == 1 and optimizer.param_groups[0]["fused"]:
            fail(mode)
        optimizer.step()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1] if len(sys.argv) > 1 else "")
