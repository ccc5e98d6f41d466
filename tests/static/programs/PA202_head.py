# after the fix: runs
"""A head of linear layers and batch norms, one under a flag; without the biases later weights are drawn otherwise."""

import torch
from torch import nn

torch.manual_seed(0)


def block(inputs, outputs, normalize=True):
    layers = [nn.Linear(inputs, outputs)]
    if normalize:
        layers.append(nn.BatchNorm1d(outputs))
    layers.append(nn.ReLU())
    return layers


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*block(16, 32, normalize=False), *block(32, 32))
        self.fc = nn.Linear(32, 8)  # narrow
        self.bn = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.bn(self.fc(self.body(x))).relu())


model = Head()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(4):
    x = torch.randn(64, 16)
    loss = nn.functional.cross_entropy(model(x), (x.mean(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
