"""nn.MultiheadAttention whose averaged weights are asked for and thrown away."""

import torch
from torch import nn

WIDTH, LENGTH, BATCH = 128, 256, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        y, _ = self.attention(y, y, y)
        x = x + y
        return x + self.mlp(x)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(3)), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3000):
        x = torch.randn(BATCH, LENGTH, WIDTH)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
