"""A training that wraps its model in DataParallel, for the patch of PA701: see `data_parallel_ranks.py`."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, stride=2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))


def train(model, device, loader, optimizer, criterion, epoch):
    model.train()
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"epoch {epoch}, step {step}: loss {loss.item():.4f}")


def evaluate(model, device, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    images = torch.randn(1280, 3, 32, 32)
    labels = images.mean((2, 3)).argmax(1)
    train_set, test_set = TensorDataset(images[:1024], labels[:1024]), TensorDataset(images[1024:], labels[1024:])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size)
    model = Net(args.width)
    model = nn.DataParallel(model).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    best = 0.0
    for epoch in range(args.epochs):
        train(model, device, train_loader, optimizer, criterion, epoch)
        accuracy = evaluate(model, device, test_loader)
        print(f"epoch {epoch}: accuracy {accuracy:.3f}")
        if accuracy > best:
            best = accuracy
            torch.save(model.module.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
