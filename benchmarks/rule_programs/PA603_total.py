"""A running total that keeps the graph of every loss."""

import torch
from torch import nn


def block(inside: int, outside: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU())


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        block(3, 32, 1), block(32, 64, 2), block(64, 64, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    total = torch.zeros(())
    shown = []
    for _ in range(3000):
        x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total = total + loss
        if len(shown) % 50 == 0:
            shown.append(total.item())


if __name__ == "__main__":
    main()
