"""A training in one process, of texts of one length through an embedding and some layers."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEPTH = 2
WORDS, WIDTH, LENGTH, BATCH = 1000, 128, 32, 32


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(DEPTH))
        )
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(tokens)).mean(1))


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(WORDS, (4096, LENGTH)), torch.randint(2, (4096,)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
