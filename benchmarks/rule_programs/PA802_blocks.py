"""Checkpointed blocks in the reentrant variant."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH = 256


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + checkpoint(self.inside, x, use_reentrant=True)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, WIDTH), *(Block() for _ in range(4)), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3000):
        x = torch.randn(512, 64)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
