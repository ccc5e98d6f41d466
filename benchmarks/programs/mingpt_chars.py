"""karpathy/minGPT's gpt-micro on the characters of Python's standard library, as its projects/chargpt trains it.

Lies in the root of a checkout of minGPT. Reductions: the smallest but one of its models, 8 samples a batch, no workers. Its
loop clips gradients, which factories cannot say: `main` runs that loop, the factories leave clipping out.
"""

import argparse
import sysconfig
from pathlib import Path

import torch
from mingpt.model import GPT
from mingpt.trainer import Trainer
from projects.chargpt.chargpt import CharDataset
from torch.utils.data import DataLoader, RandomSampler

BATCH_SIZE = 8
CHARACTERS = 400_000


def build_dataset() -> CharDataset:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = "".join(file.read_text(encoding="utf-8") for file in files[:60])
    return CharDataset(CharDataset.get_default_config(), text[:CHARACTERS])


def build_dataloader() -> DataLoader:
    dataset = build_dataset()
    sampler = RandomSampler(dataset, replacement=True, num_samples=int(1e10))
    return DataLoader(dataset, sampler=sampler, batch_size=BATCH_SIZE)


def build_model() -> GPT:
    dataset = build_dataset()
    config = GPT.get_default_config()
    config.model_type = "gpt-micro"
    config.vocab_size = dataset.get_vocab_size()
    config.block_size = dataset.get_block_size()
    return GPT(config)


def build_optimizer(model: GPT) -> torch.optim.Optimizer:
    return model.configure_optimizers(Trainer.get_default_config())


def training_step(model: GPT, batch: list[torch.Tensor]) -> torch.Tensor:
    inputs, targets = batch
    _, loss = model(inputs, targets)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    config = Trainer.get_default_config()
    config.batch_size, config.num_workers, config.max_iters = BATCH_SIZE, 0, parser.parse_args().steps
    Trainer(config, build_model(), build_dataset()).run()


if __name__ == "__main__":
    main()
