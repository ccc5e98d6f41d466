# after the fix: equal
"""A sum of losses that keeps the graph of every step."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(3):
    total = 0.0
    for _ in range(5):
        x = torch.randn(16, 4)
        loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    print(float(total))
