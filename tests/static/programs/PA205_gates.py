# after the fix: close 1e-4
"""A small network whose activations, SiLU and Mish, are written out."""

import torch
import torch.nn.functional as F
from torch import nn


class Swish(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)


def mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(F.softplus(x))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), Swish(), nn.Linear(32, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 8)
for _ in range(5):
    optimizer.zero_grad()
    loss = (mish(model(x)) - x).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
