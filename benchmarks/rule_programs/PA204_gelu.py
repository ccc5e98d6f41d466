"""GELU by its formula, in the blocks of a transformer's feed-forward part."""

import math

import torch
from torch import nn

WIDTH = 256


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(gelu(self.wide(self.norm(x))))


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3000):
        x = torch.randn(512, WIDTH)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
