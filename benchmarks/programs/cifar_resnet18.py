"""kuangliu/pytorch-cifar's ResNet18 on random images, with the optimizer and the loss of its main.py.

Lies in the root of a checkout of pytorch-cifar. Reductions: 8 images a batch, random ones, because the real ones are
downloaded. Its loop is the body of its main.py, which loads them: it cannot be run, and `main` here is a loop like it.
"""

import torch
import torch.nn.functional as F
from models import ResNet18
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 8
IMAGES = 64 * BATCH_SIZE


def build_dataloader() -> DataLoader:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(IMAGES, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (IMAGES,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=BATCH_SIZE, shuffle=True)


def build_model() -> nn.Module:
    return ResNet18()


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)


def training_step(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets)


def main() -> None:
    net = build_model()
    optimizer, loader = build_optimizer(net), build_dataloader()
    net.train()
    for _ in range(200):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = training_step(net, [inputs, targets])
            loss.backward()
            optimizer.step()
            loss.item()


if __name__ == "__main__":
    main()
