# after the fix: close 1e-2
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.body = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 256, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(256, 4)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = [(torch.randn(8, 3, 12, 12), torch.randint(4, (8,))) for _ in range(4)]
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


if __name__ == "__main__":
    main()
