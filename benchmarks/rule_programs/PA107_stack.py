"""Samples that are copied a second time on their way from NumPy."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def __len__(self) -> int:
        return 65536

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        signal = np.stack([self.random.standard_normal(4096, dtype=np.float32) for _ in range(8)])
        return torch.tensor(signal), index % 5


def main() -> None:
    torch.manual_seed(0)
    loader = DataLoader(Signals(), batch_size=64)
    model = nn.Sequential(
        nn.Conv1d(8, 16, 16, stride=8), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(64, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
