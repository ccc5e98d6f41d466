# after the fix: runs
"""Fits a line on batches whose number of workers is an option of the command line, 0 by default."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset


class Line(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.full((1,), index / 64) + 0.01 * torch.randn(1)
        return x, 3 * x


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args([])
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Line(), batch_size=16, shuffle=True, num_workers=args.workers)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(float(loss))


if __name__ == "__main__":
    main()
