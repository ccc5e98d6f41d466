# after the fix: equal
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(6):
    x = torch.randn(16, 8)
    loss = nn.functional.mse_loss(model(x), x[:, :4])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())
dist.destroy_process_group()
