"""Trains a small ResNet to tell from a crop which of two photographs it was cut from and how it was rotated.

Slow on purpose:
- PA101: the loader has no workers, and every sample decodes a JPEG
- PA102: the loader does not pin memory, and batches are moved to the accelerator
- PA105: the confusion matrix is filled with zeros on the host and then copied
- PA201: every convolution has a bias that the batch norm behind it cancels
- PA301: convolutions of one fixed size, and cuDNN never searches for its fastest algorithm
- PA401: gradients are filled with zeros instead of being dropped
- PA402: SGD runs several kernels per update instead of one fused kernel
- PA404: the average of the weights runs two kernels per parameter
- PA405: the average is updated behind the optimizer's step, where the host may just have waited for the device
- PA601: the loss is compared with NaN and read with `.item()` on every step
"""

import argparse
import copy
from pathlib import Path

import numpy as np
import sklearn.datasets
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

PHOTOS = ("china.jpg", "flower.jpg")
ROTATIONS = 4  # quarter turns
CLASSES = len(PHOTOS) * ROTATIONS
CROP = 200  # pixels of the photo
SIZE = 40  # pixels of a sample
TRAIN_SAMPLES, VAL_SAMPLES = 512, 256  # crops per epoch
BATCH_SIZE = 32
EMA_DECAY = 0.97


def random_int(high: int) -> int:
    """0 <= n < high, drawn from torch's generator, which the loader seeds in every worker."""
    return int(torch.randint(high, (1,)))


class RotatedCrops(Dataset):
    """Random crops of the photographs, each turned by 0, 90, 180 or 270 degrees.

    A sample is an image (3, SIZE, SIZE) in -1..1 and the number of its photo and rotation. Validation samples
    are other crops of the same photographs, without augmentation.
    """

    def __init__(self, train: bool) -> None:
        folder = Path(sklearn.datasets.__file__).parent / "images"
        self.paths = [folder / name for name in PHOTOS]
        self.train = train

    def __len__(self) -> int:
        return TRAIN_SAMPLES if self.train else VAL_SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = index % CLASSES
        photo, turns = divmod(label, ROTATIONS)
        image = Image.open(self.paths[photo]).convert("RGB")
        left, top = random_int(image.width - CROP), random_int(image.height - CROP)
        image = image.resize((SIZE, SIZE), box=(left, top, left + CROP, top + CROP))
        if self.train:
            image = self.augment(image)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 127.5 - 1.0
        return torch.rot90(pixels, turns, dims=(1, 2)), label

    def augment(self, image: Image.Image) -> Image.Image:
        """The upright crop, mirrored half of the time and with other brightness and contrast."""
        if random_int(2):
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = ImageEnhance.Brightness(image).enhance(0.8 + 0.4 * random_int(100) / 100)
        return ImageEnhance.Contrast(image).enhance(0.8 + 0.4 * random_int(100) / 100)


def build_dataloader(train: bool = True) -> DataLoader:
    """Shuffled training batches, or validation batches in order."""
    return DataLoader(RotatedCrops(train), batch_size=BATCH_SIZE, shuffle=train, drop_last=train)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """A ResNet with one stage of blocks per entry of widths."""

    def __init__(self, widths: tuple[int, ...], blocks_per_stage: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, widths[0], 5, stride=2, padding=2)
        self.bn = nn.BatchNorm2d(widths[0])
        blocks = []
        channels = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks_per_stage):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(BasicBlock(channels, width, stride))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.conv(x)))
        x = self.blocks(x)
        return self.head(x.mean(dim=(2, 3)))


class ModelEma:
    """A copy of the model whose weights are a moving average; evaluate `ema.model`."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for ema, param in zip(self.model.parameters(), model.parameters(), strict=True):
            ema.mul_(self.decay).add_(param, alpha=1 - self.decay)
        for ema, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            ema.copy_(buffer)


def build_model() -> nn.Module:
    return ResNet(widths=(16, 32, 64), blocks_per_stage=2, classes=CLASSES)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)


def build_ema(model: nn.Module) -> ModelEma:
    return ModelEma(model, EMA_DECAY)


def training_step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross-entropy of one batch that is already on the model's device."""
    images, labels = batch
    return F.cross_entropy(model(images), labels)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: str) -> Tensor:
    """Confusion matrix (true class, predicted class) over the loader's samples."""
    model.eval()
    confusion = torch.zeros(CLASSES, CLASSES).to(device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        predicted = model(images).argmax(dim=1)
        confusion += F.one_hot(labels, CLASSES).float().T @ F.one_hot(predicted, CLASSES).float()
    return confusion


def train(model: nn.Module, device: str, epochs: int, max_steps: int | None) -> None:
    """Trains in place, prints one line per epoch; ends early after max_steps optimizer steps."""
    loader, val_loader = build_dataloader(), build_dataloader(train=False)
    optimizer = build_optimizer(model)
    ema = build_ema(model)
    step = 0
    for epoch in range(epochs):
        model.train()
        total, batches = 0.0, 0
        for images, labels in loader:
            batch = images.to(device), labels.to(device)
            optimizer.zero_grad(set_to_none=False)
            loss = training_step(model, batch)
            if torch.isnan(loss):
                raise RuntimeError(f"the loss is not a number in step {step}")
            loss.backward()
            optimizer.step()
            ema.update(model)
            total += loss.item()
            batches += 1
            step += 1
            if step == max_steps:
                break
        print(f"epoch {epoch}: loss {total / batches:.4f}")
        if step == max_steps:
            break
    confusion = evaluate(ema.model, val_loader, device)
    accuracy = (confusion.diag().sum() / confusion.sum()).item()
    print(f"validation accuracy {accuracy:.3f} after {step} steps")


def main() -> None:
    parser = argparse.ArgumentParser(description="train a classifier of photo and rotation")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--steps", type=int, help="stop after this many optimizer steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build_model().to(device)
    train(model, device, args.epochs, args.steps)


if __name__ == "__main__":
    main()
