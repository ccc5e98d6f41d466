"""How near the predicted peak of a training step is to the counted one: `python benchmarks/memory_prediction.py`.

For every model and batch size: the peak bytes that `predicting` tells without running the step, and what `memory_of_step`
counts on the CPU when it is run, in MiB. Prints a Markdown table; seconds are processor seconds per prediction, the
first of a model with what it costs to begin.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from perfaudit.measure.memory import memory_of_step
from perfaudit.measure.memory_prediction import CannotPredict, predicting

ROOT = Path(__file__).resolve().parent.parent
MIB = 2**20
SIZES = (4, 16, 64)
BFLOAT16_SIZES = (2, 8)  # larger ones take minutes on a CPU without bfloat16 instructions


class Training:
    """One of the models below with what `predicting` asks for."""

    def __init__(self, model: nn.Module, batch_of: Callable[[int], Any], loss: Any, optimizer: Any = None) -> None:
        self.model, self.batch_of, self._loss = model, batch_of, loss
        self.optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.device = torch.device("cpu")
        self.ema: Any = None
        self.bfloat16 = False

    def fixed_batch(self) -> Any:
        return self.batch_of(4)

    def loss(self, batch: Any) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bfloat16):
            return self._loss(self.model, batch)

    def step(self, batch: Any) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        if self.ema is not None:
            self.ema()
        return loss


class Residual(nn.Module):
    """Two convolutions, and the input added."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


def resnet18() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for width in (64, 128, 256, 512):
        layers += [Residual(channels, width, 1 if width == 64 else 2), Residual(width, width, 1)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.proj(y)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, words: int = 500, length: int = 32, width: int = 96, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.embed, self.position = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words) + self.position(torch.arange(words.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


class Encoder(nn.Module):
    """torch's own transformer, with dropout, and dropped out parts recomputed where it is checkpointed."""

    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        layers = [nn.TransformerEncoderLayer(96, 4, 384, dropout=0.1, batch_first=True) for _ in range(2)]
        self.embed, self.layers, self.head = nn.Embedding(500, 96), nn.ModuleList(layers), nn.Linear(96, 500)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(x)


def classes(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def next_words(model: nn.Module, batch: Tensor) -> Tensor:
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def images(size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 3, 48, 48), torch.randint(0, 100, (size,))


def vectors(size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 32), torch.randint(0, 10, (size,))


def words(size: int) -> Tensor:
    return torch.randint(0, 500, (size, 33))


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 30_000), nn.ReLU(), nn.Linear(30_000, 10))


def sample(name: str) -> Training:
    """One of sample_models/, with batches of any size: the loader's first, repeated."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "sample_models" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    first = next(iter(module.build_dataloader()))

    def batch_of(size: int) -> Any:
        return tuple(torch.cat([t] * (size // len(t) + 1))[:size].clone() for t in first)

    model = module.build_model()
    training = Training(model, batch_of, module.training_step, module.build_optimizer(model))
    if hasattr(module, "build_ema"):
        average = module.build_ema(model)
        training.ema = lambda: average.update(model)
    return training


def with_bfloat16(training: Training) -> Training:
    training.bfloat16 = True
    return training


TRAININGS: dict[str, Callable[[], Training]] = {
    "ResNet-18, 48 x 48": lambda: Training(resnet18(), images, classes),
    "ResNet-18, bf16": lambda: with_bfloat16(Training(resnet18(), images, classes)),
    "GPT": lambda: Training(GPT(), words, next_words),
    "GPT, bf16": lambda: with_bfloat16(Training(GPT(), words, next_words)),
    "GPT, checkpointed": lambda: Training(GPT(checkpointed=True), words, next_words),
    "GPT, checkpointed, bf16": lambda: with_bfloat16(Training(GPT(checkpointed=True), words, next_words)),
    "transformer with dropout": lambda: Training(Encoder(), words, next_words),
    "the same, bf16": lambda: with_bfloat16(Training(Encoder(), words, next_words)),
    "the same, checkpointed": lambda: Training(Encoder(checkpointed=True), words, next_words),
    "MLP, 30,000 hidden": lambda: Training(wide(), vectors, classes),
    "MLP, bf16": lambda: with_bfloat16(Training(wide(), vectors, classes)),
    "char_gpt": lambda: sample("char_gpt"),
    "digits_cnn": lambda: sample("digits_cnn"),
    "photo_resnet": lambda: sample("photo_resnet"),
}


@contextmanager
def anomaly_detection_kept() -> Iterator[None]:
    """digits_cnn switches it on for the whole process."""
    before = torch.is_anomaly_enabled()
    try:
        yield
    finally:
        torch.autograd.set_detect_anomaly(before)


def rows(name: str, training: Training) -> Iterator[str]:
    sizes = BFLOAT16_SIZES if training.bfloat16 else SIZES
    try:
        with predicting(training) as peak_at:
            predicted = []
            for size in sizes:
                started = time.process_time()
                predicted.append((peak_at(size), time.process_time() - started))
    except CannotPredict as error:
        yield f"| {name} | | {error} | | | |"
        return
    for size, (peak, seconds) in zip(sizes, predicted, strict=True):
        counted = memory_of_step(training, training.batch_of(size)).tensors
        apart = (peak - counted) / MIB
        yield f"| {name} | {size} | {peak / MIB:.2f} | {counted / MIB:.2f} | {apart:+.3f} | {seconds:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="compare predicted with counted peaks of a training step")
    parser.add_argument("--only", default="", help="models whose name holds this")
    only = parser.parse_args().only
    torch.manual_seed(0)
    print("| model | batch | predicted, MiB | counted, MiB | apart | s |\n|---|---:|---:|---:|---:|---:|")
    for name, build in TRAININGS.items():
        if only in name:
            with anomaly_detection_kept():
                for row in rows(name, build()):
                    print(row, flush=True)


if __name__ == "__main__":
    main()
