# after the fix: close 1e-4
import copy

import torch
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
teacher = copy.deepcopy(student)
target = copy.deepcopy(student)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)


@torch.no_grad()
def update_teacher(decay):
    for e, p in zip(teacher.parameters(), student.parameters(), strict=True):
        e.mul_(decay).add_(p, alpha=1 - decay)


def soft_update(tau):
    for target_param, param in zip(target.parameters(), student.parameters(), strict=True):
        target_param.data.copy_(tau * param.data + (1.0 - tau) * target_param.data)


for _ in range(5):
    x = torch.randn(16, 8)
    with torch.no_grad():
        goal = teacher(x + 0.1 * torch.randn_like(x)) + target(x)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(student(x), goal)
    loss.backward()
    optimizer.step()
    update_teacher(0.99)
    soft_update(0.005)
    print(loss.item())
    print(sum(p.sum() for p in [*teacher.parameters(), *target.parameters()]).item())
