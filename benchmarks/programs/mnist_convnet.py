"""The convolutional network of pytorch/examples' mnist, on random images of that size, in its own loop.

Lies in the root of a checkout of pytorch/examples. Reduction: random images, because the real ones are downloaded; torchvision,
which only downloads and transforms them there, is an empty module here.
"""

import argparse
import sys
import types

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torchvision = types.ModuleType("torchvision")
torchvision.datasets = torchvision.transforms = None
sys.modules.setdefault("torchvision", torchvision)

from mnist.main import Net, train  # noqa: E402

BATCH_SIZE = 64
IMAGES = 64 * BATCH_SIZE


def build_dataloader() -> DataLoader:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(IMAGES, 1, 28, 28, generator=generator)
    digits = torch.randint(10, (IMAGES,), generator=generator)
    return DataLoader(TensorDataset(images, digits), batch_size=BATCH_SIZE)


def build_model() -> nn.Module:
    return Net()


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(model.parameters(), lr=1.0)


def training_step(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    data, target = batch
    return F.nll_loss(model(data), target)


def main() -> None:
    torch.manual_seed(1)
    model = build_model()
    optimizer, loader = build_optimizer(model), build_dataloader()
    arguments = argparse.Namespace(log_interval=10, dry_run=False)
    for epoch in range(1, 15):
        train(arguments, model, torch.device("cpu"), loader, optimizer, epoch)


if __name__ == "__main__":
    main()
