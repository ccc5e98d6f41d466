"""Trains the GPT-2 of naive.py on the same tokens, with what an expert changes.

Changed:
- float32 matmuls round their inputs to TF32, and model and loss run under autocast in bfloat16
- the model is compiled
- attention and GELU are the library's; the scores of all pairs of positions are never stored
- the vocabulary is padded to a multiple of 64, so the embedding has rows that no token asks for
- AdamW is fused
- the loader pins memory, and batches are copied without waiting; the tokens lie in memory, so it needs no workers

Not run on an accelerator yet: a test builds it with a few layers, and takes one step on the CPU.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

TOKENS = 50257  # that the data have
VOCABULARY = 50304  # with those added that are never a target
BLOCK = 1024  # tokens per sample
LAYERS, HEADS, WIDTH = 12, 12, 768
BATCH_SIZE = 16
SAMPLES = 800  # 50 batches
REPORT_EVERY = 20  # steps

torch.set_float32_matmul_precision("high")


def build_dataloader() -> DataLoader:
    """Shuffled batches of random tokens, and the same shifted by one as targets: the speed asks for no more."""
    tokens = torch.randint(TOKENS, (SAMPLES, BLOCK + 1), generator=torch.Generator().manual_seed(0))
    data = TensorDataset(tokens[:, :-1], tokens[:, 1:])
    return DataLoader(data, batch_size=BATCH_SIZE, shuffle=True, drop_last=True, pin_memory=True)


class CausalSelfAttention(nn.Module):
    """Every position looks at itself and the positions before it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


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
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


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
    model = GPT()
    model.compile()
    return model


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def training_step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross-entropy per token of one batch that is already on the model's device."""
    inputs, targets = batch
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def train(model: nn.Module, device: str, max_steps: int) -> None:
    """Trains in place for that many steps, prints the loss while it runs and at the end."""
    loader = build_dataloader()
    optimizer = build_optimizer(model)
    step = 0
    while step < max_steps:
        for inputs, targets in loader:
            batch = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
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
