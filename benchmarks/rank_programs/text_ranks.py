"""A training of a small text classifier on two ranks, with one thing wrong in it, or nothing: see `ranks.py`."""

from __future__ import annotations

import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

WIDTH, WORDS, BATCH = 96, 1000, 16
SHORT, LONG = 16, 96  # tokens of a text


class Texts(Dataset[torch.Tensor]):
    """Random texts of one length, or of two very different ones."""

    def __init__(self, lengths: tuple[int, ...], are_ranks_alike: bool) -> None:
        self.are_ranks_alike = are_ranks_alike  # batches that the ranks take at the same time have texts of one length
        chance = random.Random(0)
        self.blocks = [lengths[0] if chance.random() < 0.5 else lengths[-1] for _ in range(512)]

    def __len__(self) -> int:
        return 8192

    def __getitem__(self, index: int) -> torch.Tensor:
        apart = 0 if self.are_ranks_alike else 7 * (index % 2)  # a sampler gives every second index to a rank
        length = self.blocks[(index // (2 * BATCH) + apart) % len(self.blocks)]
        return torch.full((length,), index % WORDS)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(3))
        )
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(tokens)).mean(1))


def main(mode: str) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(2 if mode == "two threads" else 1)
    torch.manual_seed(0)
    data = Texts((SHORT, LONG) if mode in ("imbalance", "evened") else (64,), mode == "evened")
    sampler: DistributedSampler[torch.Tensor] = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=1 if mode == "worker" else 0)
    model = Model()
    trained = model if mode == "unoverlapped" else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        for tokens in loader:
            if mode == "straggler" and dist.get_rank() == 1:
                time.sleep(0.005)
            loss = trained(tokens).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if mode == "unoverlapped":
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= dist.get_world_size()
            optimizer.step()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1] if len(sys.argv) > 1 else "balanced")
