# after the fix: equal
"""A validation loop that records a graph nobody uses."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
batches = [torch.randn(16, 4) for _ in range(4)]


def evaluate(model: nn.Module) -> float:
    model.eval()
    total = 0.0
    for x in batches:
        loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
        total += loss.item()
    return total / len(batches)


for _ in range(3):
    model.train()
    for x in batches:
        loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(evaluate(model))
