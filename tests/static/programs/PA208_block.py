# after the fix: close 1e-4
"""A block whose attention weights are dropped."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attn = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        y, _ = self.attn(y, y, y)
        return x + y


torch.manual_seed(0)
model = nn.Sequential(Block(), Block())
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
x, target = torch.randn(4, 10, 16), torch.randn(4, 10, 16)
for _ in range(5):
    optimizer.zero_grad()
    loss = (model(x) - target).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
