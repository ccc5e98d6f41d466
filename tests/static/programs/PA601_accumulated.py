# after the fix: close 1e-4
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(model, batches, optimizer, accumulate):
    total = 0.0
    for i, (x, y) in enumerate(batches):
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device)) / accumulate
        loss.backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
    return total


torch.manual_seed(0)
model = nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(12)]
for _ in range(3):
    print(train(model, batches, optimizer, accumulate=4))
print(train(model, batches[:3], optimizer, accumulate=4))
