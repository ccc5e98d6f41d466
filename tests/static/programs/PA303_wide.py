# after the fix: close 1e-4
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(8, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1)).to(
        device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batches = [(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(3)]
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


if __name__ == "__main__":
    main()
