"""The training of accumulating_ranks.py: `no_sync` sums gradients in the last of four passes, `searching` in each.

`searching` also looks for unused parameters in each pass, and finds none.
"""

from __future__ import annotations

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, LAYERS, BATCH, PASSES = 512, 6, 8, 4


def main(mode: str) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, WIDTH), torch.randint(10, (4096,)))
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model = DistributedDataParallel(
        nn.Sequential(*layers, nn.Linear(WIDTH, 10)), find_unused_parameters=mode == "searching"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(100):
        for number, (features, labels) in enumerate(loader):
            is_last = (number + 1) % PASSES == 0
            with model.no_sync() if mode == "no_sync" and not is_last else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(model(features), labels)
                (loss / PASSES).backward()
            if is_last:
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1] if len(sys.argv) > 1 else "no_sync")
