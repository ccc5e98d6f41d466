# after the fix: close 1e-4
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
ema = AveragedModel(model, avg_fn=get_ema_avg_fn(0.9), use_buffers=True)
slow = AveragedModel(model, avg_fn=lambda average, new, count: 0.99 * average + 0.01 * new)
mean = AveragedModel(model, avg_fn=torch.optim.swa_utils.get_swa_avg_fn())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 8), torch.randn(64, 1)
for batch, target in zip(x.split(16), y.split(16), strict=True):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch), target)
    loss.backward()
    optimizer.step()
    for average in (ema, slow, mean):
        average.update_parameters(model)
    print(loss.item())
for average in (ema, slow, mean):
    print(nn.functional.mse_loss(average.eval()(x), y).item())
