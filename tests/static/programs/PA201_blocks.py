# after the fix: runs
"""Two blocks of convolution and norm; without the biases the later weights are drawn from another place of the stream."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3),  # three by three
    nn.BatchNorm2d(4),
    nn.ReLU(),
    nn.Conv2d(4, 4, 3, padding=1),
    nn.BatchNorm2d(4),
    nn.Flatten(),
    nn.Linear(4 * 36, 2),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(4):
    x = torch.randn(8, 1, 8, 8)
    loss = nn.functional.cross_entropy(model(x), (x.mean((1, 2, 3)) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(float(loss))
