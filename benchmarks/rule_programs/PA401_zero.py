"""Gradients that are filled with zeros before every step, in a model of 24 small layers."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(24) for part in (nn.Linear(128, 128), nn.LayerNorm(128), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(5000):
        x, y = torch.randn(64, 128), torch.randint(0, 10, (64,))
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
