"""Trains a GPT-2 of 124 million parameters on random tokens, as a first version of such a program is written.

Slow on purpose:
- PA102: the loader does not pin memory, and the host waits for the copy of every batch
- PA203: attention is written out (scores, mask, softmax, weighted sum), so the scores of all pairs are stored
- PA204: GELU is written out with tanh, one kernel and one saved tensor per operation
- PA206: the vocabulary of 50257 is no multiple of 64
- PA402: AdamW runs several kernels per update instead of one fused kernel
And what no line of text shows: matmuls in float32 without TF32 or autocast, and a model that is not compiled.

The sizes are those of GPT-2's smallest model, and a batch has 16 x 1024 tokens. Not run on an accelerator yet: a test
builds it with a few layers, and takes one step on the CPU.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY = 50257
BLOCK = 1024  # tokens per sample
LAYERS, HEADS, WIDTH = 12, 12, 768
BATCH_SIZE = 16
SAMPLES = 800  # 50 batches
REPORT_EVERY = 20  # steps


def build_dataloader() -> DataLoader:
    """Shuffled batches of random tokens, and the same shifted by one as targets: the speed asks for no more."""
    tokens = torch.randint(VOCABULARY, (SAMPLES, BLOCK + 1), generator=torch.Generator().manual_seed(0))
    data = TensorDataset(tokens[:, :-1], tokens[:, 1:])
    return DataLoader(data, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class CausalSelfAttention(nn.Module):
    """Every position looks at itself and the positions before it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(BLOCK, BLOCK, dtype=torch.bool)), persistent=False)

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
    """Logits (batch, length, vocabulary) of the next token at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight  # one matrix for both, as in GPT-2
        self.apply(initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embed(tokens) + self.position(positions)
        return self.head(self.norm(self.blocks(x)))


def initialise(module: nn.Module) -> None:
    """Weights as small as GPT-2's, so that the first losses are those of a guess."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def build_model() -> nn.Module:
    return GPT()


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)


def training_step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross-entropy per token of one batch that is already on the model's device."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def train(model: nn.Module, device: str, max_steps: int) -> None:
    """Trains in place for that many steps, prints the loss while it runs and at the end."""
    loader = build_dataloader()
    optimizer = build_optimizer(model)
    step = 0
    while step < max_steps:
        for inputs, targets in loader:
            batch = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = training_step(model, batch)
            loss.backward()
            optimizer.step()
            step += 1
            if step % REPORT_EVERY == 0 or step == max_steps:
                print(f"step {step}: loss {loss.item():.4f}")
            if step == max_steps:
                break


def main() -> None:
    parser = argparse.ArgumentParser(description="train a GPT-2 of 124 million parameters on random tokens")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build_model().to(device)
    train(model, device, args.steps)


if __name__ == "__main__":
    main()
