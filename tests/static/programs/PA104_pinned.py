# after the fix: equal
"""Fits a line on batches from pinned memory, copied to the GPU where there is one."""

import warnings

import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", message=".*pin_memory.*")  # without a GPU nothing is pinned
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(loader: DataLoader, model: torch.nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device, dtype=torch.float32)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        print(round(loss.item(), 6))


torch.manual_seed(0)
x = torch.randn(64, 4)
y = (x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])).double()
train(DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, pin_memory=True), torch.nn.Linear(4, 1).to(device))
