"""A classifier that Hugging Face's Trainer trains, naively: one process loads and trains, in float32, with two batches a step."""

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Points(Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        inputs = torch.randn(32, generator=torch.Generator().manual_seed(index))
        return {"inputs": inputs, "labels": torch.tensor(index % 4)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 4))

    def forward(self, inputs, labels=None):
        logits = self.layers(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main():
    arguments = TrainingArguments(
        output_dir="out",
        max_steps=2000,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        optim="adamw_torch",  # torch's own loop over parameters
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(model=Net(), args=arguments, train_dataset=Points()).train()


if __name__ == "__main__":
    main()
