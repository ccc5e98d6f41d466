"""A classifier that Lightning's Trainer trains, naively: one process loads and trains, in float32, with two batches a step."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Points(lightning.LightningDataModule):
    def train_dataloader(self):
        inputs = torch.randn(1024, 32, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(inputs, torch.arange(1024) % 4), batch_size=8, shuffle=True)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 4))

    def training_step(self, batch, number):
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.layers(inputs), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    trainer = lightning.Trainer(
        max_steps=2000,
        accumulate_grad_batches=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), datamodule=Points())


if __name__ == "__main__":
    main()
