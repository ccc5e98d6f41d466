# after the fix: equal
"""A masked sum whose mask and positions are built on the host and sent over."""

import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
scores = torch.randn(4, 4, device=device)
for step in range(3):
    mask = torch.ones(4, 4).to(device)
    positions = torch.arange(4).to(device)
    print(float((scores * mask.tril() + positions * step).sum()))
