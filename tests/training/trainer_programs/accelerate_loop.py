"""A classifier trained in a loop with Accelerate, naively: one process loads and trains, in float32, with two batches a step."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 4))

    def forward(self, inputs):
        return self.layers(inputs)


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = Net()
    inputs = torch.randn(1024, 32, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(inputs, torch.arange(1024) % 4), batch_size=8, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(40):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
