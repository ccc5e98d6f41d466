"""A training in one process, of rows through many small layers, whose update is slower than it must be."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEPTH = 2
WIDTH, BATCH = 128, 64


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, WIDTH), torch.randint(10, (4096,)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(12 * DEPTH)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(100):
        for features, labels in loader:
            loss = nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
