# after the fix: equal
"""Fits a line, with the switch for synchronous launches left on."""

import os

os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # to find the failing kernel

import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
x = torch.randn(64, 4).to(device)
y = x.sum(1, keepdim=True)
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    print(round(loss.item(), 6))
