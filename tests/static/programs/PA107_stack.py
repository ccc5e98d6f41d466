# after the fix: equal
"""Batches that are made of numpy arrays."""

import numpy as np
import torch


class Samples(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.values = np.random.default_rng(0).normal(size=(8, 3))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> torch.Tensor:
        pair = np.stack([self.values[index], -self.values[index]])
        return torch.tensor(pair) + torch.tensor(np.array(index))


samples = Samples()
batch = torch.tensor([np.array(samples.values[n]) for n in range(4)])
wide = torch.tensor([np.zeros(3), np.ones(3)], dtype=torch.float32)
for sample, row in zip(samples, batch, strict=False):
    print(round(float(sample.square().sum()), 9))
    print(round(float(row.square().sum()), 9))
print(float(wide.sum()))
