"""A training of a small text classifier on ranks, whose batches of random texts are padded to their longest one."""

from __future__ import annotations

import os
import random
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, DistributedSampler

WIDTH, WORDS, BATCH = 64, 1000, 8


class Texts(Dataset[dict[str, Any]]):
    """Texts of 8 to 160 words; most are short."""

    def __init__(self) -> None:
        chance = random.Random(0)
        self.lengths = [min(160, 8 + int(chance.expovariate(1 / 30))) for _ in range(4096)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        words = torch.arange(self.lengths[index]) * (index + 7) % (WORDS - 1) + 1
        return {"words": words, "label": index % 2}


def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    words = pad_sequence([sample["words"] for sample in samples], batch_first=True)
    labels = torch.tensor([sample["label"] for sample in samples])
    return {"words": words, "attention_mask": (words > 0).long(), "labels": labels}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(3))
        )
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(self.embed(words)) * mask.unsqueeze(-1)
        return self.head(hidden.sum(1) / mask.sum(1, keepdim=True))


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = Texts()
    sampler: DistributedSampler[dict[str, Any]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, collate_fn=collate)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        for batch in loader:
            scores = model(batch["words"], batch["attention_mask"])
            loss = nn.functional.cross_entropy(scores, batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
