# after the fix: equal
"""Fits a line on batches from a worker that go to the GPU where there is one."""

import torch
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def main() -> None:
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 64).unsqueeze(1)
    model = torch.nn.Linear(1, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(x, 3 * x), batch_size=16, shuffle=True, num_workers=1)
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(float(loss))


if __name__ == "__main__":
    main()
