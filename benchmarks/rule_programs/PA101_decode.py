"""Pictures that are stored compressed, decoded and augmented by the process that trains."""

import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 96


class Pictures(Dataset):
    def __init__(self, count: int) -> None:
        random = np.random.default_rng(0)
        flat = (random.integers(0, 256, (SIZE // 8, SIZE // 8, 3), dtype=np.uint8) for _ in range(count))
        self.files = [zlib.compress(np.kron(part, np.ones((8, 8, 1), dtype=np.uint8)).tobytes(), 6) for part in flat]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = np.frombuffer(zlib.decompress(self.files[index]), dtype=np.uint8).reshape(SIZE, SIZE, 3)
        bright = pixels.astype(np.float32) * np.random.uniform(0.8, 1.2)
        turned = bright[:, ::-1] if np.random.rand() < 0.5 else bright
        normal = (turned - turned.mean((0, 1))) / (turned.std((0, 1)) + 1e-3)
        return torch.from_numpy(np.ascontiguousarray(normal.transpose(2, 0, 1))), index % 10


def main() -> None:
    torch.manual_seed(0)
    loader = DataLoader(Pictures(2048), batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(10),
    )
    model(torch.zeros(1, 3, SIZE, SIZE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(100):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
