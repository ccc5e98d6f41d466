"""Trains a small residual network to take noise off patches of two photographs. A plain script: all of it happens in `main`.

Slow on purpose:
- PA101: the loader has no workers, and every sample decodes a JPEG
- PA102: the loader does not pin memory, and batches are moved to the accelerator
- PA204: GELU is written out with tanh, one kernel and one saved tensor per operation
- PA402: AdamW runs one kernel group per operation instead of one fused kernel
- PA501: anomaly detection is still on
- PA601: the loss is read with `.item()` on every step
"""

import argparse
import math
from pathlib import Path

import numpy as np
import sklearn.datasets
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

PHOTOS = ("china.jpg", "flower.jpg")
SIZE = 16  # pixels of a patch
NOISE = 0.2  # standard deviation, of pixels in 0..1


class Patches(Dataset):
    """Random patches of the photographs, flattened: with noise, and as they are."""

    def __init__(self, count: int) -> None:
        folder = Path(sklearn.datasets.__file__).parent / "images"
        self.paths = [folder / name for name in PHOTOS]
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = Image.open(self.paths[index % len(self.paths)]).convert("RGB")
        left = int(torch.randint(image.width - SIZE, (1,)))
        top = int(torch.randint(image.height - SIZE, (1,)))
        patch = np.array(image.crop((left, top, left + SIZE, top + SIZE)))
        clean = torch.from_numpy(patch).float().flatten() / 255
        return clean + NOISE * torch.randn_like(clean), clean


class Gelu(nn.Module):
    """The tanh form of the Gaussian error linear unit."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Denoiser(nn.Module):
    """Residual blocks between two linear layers; what comes out is the noise."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        pixels = 3 * SIZE * SIZE
        self.first = nn.Linear(pixels, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), Gelu(), nn.Linear(4 * width, width))
            for _ in range(depth)
        )
        self.last = nn.Linear(width, pixels)

    def forward(self, noisy: Tensor) -> Tensor:
        x = self.first(noisy)
        for block in self.blocks:
            x = x + block(x)
        return noisy - self.last(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=0, help="stop each epoch after so many steps")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--checkpoint", default="denoiser.pt")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.autograd.set_detect_anomaly(True)  # there was a NaN once
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Patches(2048), batch_size=32, shuffle=True, drop_last=True)
    model = Denoiser(args.width, depth=4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for step, (noisy, clean) in enumerate(loader, start=1):
            noisy, clean = noisy.to(device), clean.to(device)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(noisy), clean)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step == args.steps:
                break
        print(f"epoch {epoch + 1}: loss {total / step:.4f}")
        torch.save(model.state_dict(), args.checkpoint)


if __name__ == "__main__":
    main()
