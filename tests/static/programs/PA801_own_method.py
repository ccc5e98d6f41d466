# after the fix: equal
"""An evaluation whose model is run by a method of the object that keeps it, and whose scores are kept as arrays."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
batches = [torch.randn(16, 4) for _ in range(4)]


class Detector:
    def __init__(self) -> None:
        self.network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 4))
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.05)

    def fit(self) -> None:
        self.network.train()
        for x in batches:
            loss = nn.functional.mse_loss(self.network(x), x)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def score(self) -> np.ndarray:
        self.network.eval()
        train_energy = []
        for x in batches:
            errors = self.run_batch(x)
            train_energy.append(errors.detach().cpu().numpy())
        return np.concatenate(train_energy)

    def run_batch(self, x: torch.Tensor) -> torch.Tensor:
        return (self.network(x) - x).square().mean(1)


detector = Detector()
for _ in range(3):
    detector.fit()
    print(detector.score().tolist())
