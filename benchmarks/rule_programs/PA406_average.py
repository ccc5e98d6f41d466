"""AveragedModel with an average of its own for each tensor."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel


def main() -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(24) for part in (nn.Linear(128, 128), nn.LayerNorm(128), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(128, 10))
    average = AveragedModel(model, avg_fn=lambda mean, p, n: 0.999 * mean + 0.001 * p)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(5000):
        x, y = torch.randn(64, 128), torch.randint(0, 10, (64,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)


if __name__ == "__main__":
    main()
