# after the fix: runs
import copy

import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Average:
    def __init__(self, model, decay):
        self.module, self.decay = copy.deepcopy(model), decay

    @torch.no_grad()
    def update(self, model):
        new = [p.detach() for p in model.parameters()]
        torch._foreach_lerp_(list(self.module.parameters()), new, 1 - self.decay)


model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
ema = Average(model, 0.9)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 8), torch.randn(64, 1)
for batch, target in zip(x.split(16), y.split(16), strict=True):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch.to(device)), target.to(device))
    loss.backward()
    optimizer.step()
    ema.update(model)
    print(loss.item())
print(nn.functional.mse_loss(ema.module(x.to(device)), y.to(device)).item())
