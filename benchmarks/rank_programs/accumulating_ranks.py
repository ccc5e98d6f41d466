"""A training on ranks whose gradients come from four passes, and are summed over the ranks in each of them.

That, and all else that `perfaudit tune` can patch on ranks, is left as torch has it. synced_ranks.py is the same training, which
sums them once a step.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, LAYERS, BATCH, PASSES = 512, 6, 8, 4


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, WIDTH), torch.randint(10, (4096,)))
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 10)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(100):
        for number, (features, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(features), labels)
            (loss / PASSES).backward()
            if (number + 1) % PASSES == 0:
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
