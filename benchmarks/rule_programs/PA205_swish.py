"""Swish as a product of a tensor and its sigmoid."""

import torch
from torch import nn

WIDTH = 256


def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(swish(self.wide(self.norm(x))))


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
