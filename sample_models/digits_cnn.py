"""Trains a small convolutional network on the UCI digits (8 x 8 pixels) that scikit-learn brings.
They lie in memory, so workers would cost more than they save.

Slow on purpose:
- PA102: the loader does not pin memory, and batches are moved to the accelerator
- PA201: every convolution has a bias that the batch norm behind it cancels
- PA204: GELU is written out with tanh, one kernel and one saved tensor per operation
- PA301: convolutions of one fixed size, and cuDNN never searches for its fastest algorithm
- PA402: AdamW runs one kernel group per operation instead of one fused kernel
- PA501: anomaly detection is still on
- PA601: the loss is read with `.item()` on every step
- PA801: the evaluation builds a graph for every batch
"""

import argparse
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 64
LEARNING_RATE = 2e-3
CLASSES = 10
DEPTH = 2  # further blocks at each of the two sizes
HIDDEN = 2048  # width of the head

# the loss turned NaN once with lr 0.1, this shows in which layer
torch.autograd.set_detect_anomaly(True)


def build_dataset(train: bool) -> TensorDataset:
    """Images (N, 1, 8, 8) in 0..1 and their digits; always the same fifth is kept for validation."""
    digits = load_digits()
    train_images, val_images, train_labels, val_labels = train_test_split(
        digits.images, digits.target, test_size=0.2, random_state=0, stratify=digits.target
    )
    images, labels = (train_images, train_labels) if train else (val_images, val_labels)
    pixels = torch.from_numpy(images).float().unsqueeze(1) / 16.0
    return TensorDataset(pixels, torch.from_numpy(labels).long())


def build_dataloader(train: bool = True) -> DataLoader:
    """Shuffled training batches, or validation batches in order."""
    return DataLoader(build_dataset(train), batch_size=BATCH_SIZE, shuffle=train, drop_last=train)


class Gelu(nn.Module):
    """The tanh form of the Gaussian error linear unit."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def conv_block(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel_size=3, padding=1),
        nn.BatchNorm2d(width),
        Gelu(),
    )


def build_model() -> nn.Module:
    return nn.Sequential(
        conv_block(1, 32),
        *(conv_block(32, 32) for _ in range(DEPTH)),
        nn.MaxPool2d(2),
        conv_block(32, 64),
        *(conv_block(64, 64) for _ in range(DEPTH)),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, HIDDEN),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(HIDDEN, CLASSES),
    )


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=1e-2)


def training_step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross-entropy of one batch that is already on the model's device."""
    images, labels = batch
    return F.cross_entropy(model(images), labels, label_smoothing=0.05)


def evaluate(model: nn.Module, loader: DataLoader, device: str) -> float:
    """Fraction of the loader's samples that are classified correctly."""
    model.eval()
    correct, seen = 0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        predicted = model(images).argmax(dim=1)
        correct += (predicted == labels).sum().item()
        seen += len(labels)
    return correct / seen


def train(model: nn.Module, device: str, epochs: int, max_steps: int | None) -> None:
    """Trains in place, prints one line per epoch; ends early after max_steps optimizer steps."""
    loader, val_loader = build_dataloader(), build_dataloader(train=False)
    optimizer = build_optimizer(model)
    step = 0
    for epoch in range(epochs):
        model.train()
        total, batches = 0.0, 0
        for images, labels in loader:
            batch = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = training_step(model, batch)
            loss.backward()
            optimizer.step()
            total += loss.item()
            batches += 1
            step += 1
            if step == max_steps:
                break
        print(f"epoch {epoch}: loss {total / batches:.4f}")
        if step == max_steps:
            break
    print(f"validation accuracy {evaluate(model, val_loader, device):.3f} after {step} steps")


def main() -> None:
    parser = argparse.ArgumentParser(description="train a digit classifier")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--steps", type=int, help="stop after this many optimizer steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build_model().to(device)
    train(model, device, args.epochs, args.steps)


if __name__ == "__main__":
    main()
