# after the fix: runs
"""Convolutions and norms under conditions, from a generator, in lists side by side and from a function with a bias switch."""

from itertools import pairwise

import torch
from torch import nn

torch.manual_seed(0)


def conv1x1(inputs, outputs, bias=True):
    return nn.Conv2d(inputs, outputs, 1, bias=bias)


def stages(widths):
    for inputs, outputs in pairwise(widths):
        yield nn.Conv2d(inputs, outputs, 3, padding=1)
        yield nn.BatchNorm2d(outputs)


def block(width, first=False, norm="batch"):
    layers = [nn.Conv2d(width, width, 3, padding=1)]
    if not first:
        layers.append(nn.BatchNorm2d(width))
    layers.append(nn.Conv2d(width, width, 3, padding=1))
    if norm == "batch":
        layers.append(nn.BatchNorm2d(width))
    elif norm == "instance":
        layers.append(nn.InstanceNorm2d(width))
    return layers


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            *stages([1, 4, 4]), *block(4, first=True), *block(4, norm="instance"), *block(4, norm="none")
        )
        self.convs = nn.ModuleList([nn.Conv2d(4, 4, 1) for _ in range(2)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(4) for _ in range(2)])
        self.squeeze = conv1x1(4, 2)
        self.squeeze_norm = nn.BatchNorm2d(2)

    def forward(self, x):
        x = self.stem(x)
        for i, conv in enumerate(self.convs):
            norm = self.norms[i]
            x = norm(conv(x)).relu()
        return self.squeeze_norm(self.squeeze(x)).mean((2, 3))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(3):
    x = torch.randn(8, 1, 8, 8)
    loss = nn.functional.cross_entropy(model(x), (x.mean((1, 2, 3)) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
