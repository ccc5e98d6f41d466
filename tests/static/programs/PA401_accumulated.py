# after the fix: equal
"""Two optimizers of one model, with gradients filled with zeros."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(6):
    x = torch.randn(16, 4)
    loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(float(loss))
