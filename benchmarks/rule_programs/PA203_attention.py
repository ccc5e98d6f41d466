"""Causal attention that is written out: scores, mask, softmax, weighted sum."""

import math

import torch
from torch import nn

WIDTH, HEADS, LENGTH, BATCH = 128, 4, 256, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.register_buffer("seen", torch.tril(torch.ones(LENGTH, LENGTH)).bool())

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // HEADS)
        scores = scores.masked_fill(~self.seen[:length, :length], float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        y = weights @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(96, WIDTH), *(Block() for _ in range(3)), nn.Linear(WIDTH, 96))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(3000):
        x = torch.randint(0, 96, (BATCH, LENGTH + 1))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
