"""Trains a small GPT on the characters of Python's standard library.

Slow on purpose:
- PA101: the loader has no workers
- PA102: the loader does not pin memory, and batches are moved to the accelerator
- PA203: attention is written out (scores, mask, softmax, weighted sum), so the scores of all pairs are stored
- PA204: GELU is written out with tanh, one kernel and one saved tensor per operation
- PA306: every small operator of a block is a launch of its own
- PA402: AdamW runs several kernels per update instead of one fused kernel
- PA601: the loss is read with `.item()` on every step
- PA602: the cache of the allocator is emptied on every step
- PA603: the sum of the losses keeps every step's graph
- PA801: the evaluation builds a graph for every batch
"""

import argparse
import math
import sysconfig
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CORPUS_CHARACTERS = 600_000
VAL_CHARACTERS = 40_000  # the end of the corpus
BLOCK = 128  # characters per sample
REPORT_EVERY = 20  # steps
LAYERS, HEADS, WIDTH = 4, 4, 128
BATCH_SIZE = 16


@cache
def corpus() -> str:
    """The library's top-level modules in alphabetical order, up to CORPUS_CHARACTERS."""
    text = ""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_text(encoding="utf-8")
        if len(text) > CORPUS_CHARACTERS:
            break
    return text[:CORPUS_CHARACTERS]


@cache
def vocabulary() -> dict[str, int]:
    """The number of every character of the corpus."""
    return {character: number for number, character in enumerate(sorted(set(corpus())))}


class Characters(Dataset):
    """Pieces of the corpus: BLOCK characters, and the same shifted by one as the target."""

    def __init__(self, train: bool) -> None:
        text = corpus()[:-VAL_CHARACTERS] if train else corpus()[-VAL_CHARACTERS:]
        numbers = vocabulary()
        self.tokens = torch.tensor([numbers[character] for character in text])

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // BLOCK

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * BLOCK
        piece = self.tokens[start : start + BLOCK + 1]
        return piece[:-1], piece[1:]


def build_dataloader(train: bool = True) -> DataLoader:
    """Shuffled training batches, or validation batches in order."""
    return DataLoader(Characters(train), batch_size=BATCH_SIZE, shuffle=train, drop_last=train)


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class CausalSelfAttention(nn.Module):
    """Every position looks at itself and the positions before it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(BLOCK, BLOCK, dtype=torch.bool)))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // HEADS)
        scores = scores.masked_fill(~self.mask[:length, :length], float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        return self.proj(y)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = CausalSelfAttention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Logits (batch, length, characters) of the next character at every position."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, WIDTH)
        self.position = nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embed(tokens) + self.position(positions)
        return self.head(self.norm(self.blocks(x)))


def build_model() -> nn.Module:
    return GPT(characters=len(vocabulary()))


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)


def training_step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross-entropy per character of one batch that is already on the model's device."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def evaluate(model: nn.Module, loader: DataLoader, device: str) -> float:
    """Mean cross-entropy per character over the loader's samples."""
    model.eval()
    total, samples = 0.0, 0
    for inputs, targets in loader:
        loss = training_step(model, (inputs.to(device), targets.to(device)))
        total += loss.item() * len(inputs)
        samples += len(inputs)
    return total / samples


def train(model: nn.Module, device: str, epochs: int, max_steps: int | None) -> None:
    """Trains in place, prints the loss while it runs; ends early after max_steps steps."""
    loader, val_loader = build_dataloader(), build_dataloader(train=False)
    optimizer = build_optimizer(model)
    step, total, best = 0, 0.0, math.inf
    for epoch in range(epochs):
        model.train()
        for inputs, targets in loader:
            batch = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = training_step(model, batch)
            loss.backward()
            optimizer.step()
            total += loss
            best = min(best, loss.item())
            torch.cuda.empty_cache()
            step += 1
            if step % REPORT_EVERY == 0:
                print(f"epoch {epoch}, step {step}: loss {total / REPORT_EVERY:.4f}")
                total = 0.0
            if step == max_steps:
                break
        print(f"epoch {epoch}: best loss so far {best:.4f}")
        if step == max_steps:
            break
    print(f"validation loss {evaluate(model, val_loader, device):.4f} after {step} steps")


def main() -> None:
    parser = argparse.ArgumentParser(description="train a character-level language model")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="stop after this many optimizer steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build_model().to(device)
    train(model, device, args.epochs, args.steps)


if __name__ == "__main__":
    main()
