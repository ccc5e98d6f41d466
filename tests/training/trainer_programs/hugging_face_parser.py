"""A classifier that Hugging Face's Trainer trains, naively, with its arguments from the command line."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    width: int = field(default=128)


class Points(Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        inputs = torch.randn(32, generator=torch.Generator().manual_seed(index))
        return {"inputs": inputs, "labels": torch.tensor(index % 4)}


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, 4))

    def forward(self, inputs, labels=None):
        logits = self.layers(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    Trainer(model=Net(model_args.width), args=training_args, train_dataset=Points()).train()


if __name__ == "__main__":
    main()
