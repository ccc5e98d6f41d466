# after the fix: equal
"""A training in which somebody once looked for a NaN."""

import torch
from torch import nn

torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(6):
    x = torch.randn(16, 4)
    with torch.autograd.detect_anomaly():
        loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()
    print(float(loss))
