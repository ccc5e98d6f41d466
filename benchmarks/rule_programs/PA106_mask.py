"""A causal mask and position scales that every block builds in float32 and then casts."""

import torch
from torch import nn

WIDTH, HEADS, LENGTH, BATCH = 128, 4, 256, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        seen = torch.ones(batch, HEADS, length, length).bool()
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(WIDTH, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3000):
        x = torch.randn(BATCH, LENGTH, WIDTH)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
