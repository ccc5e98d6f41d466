# after the fix: runs
"""Fits a line; each epoch goes once over a loader with one worker."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def train() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, num_workers=1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        total = torch.zeros(())
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(round(float(total), 6))


if __name__ == "__main__":
    train()
