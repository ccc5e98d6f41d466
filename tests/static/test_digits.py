"""PA301 and PA304 are hints in programs that train on digits of 28 by 28 alone, exercises as a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.test_programs_of_several_files import findings_in, write

SCRIPT = """
import argparse
import torch
from torch import nn
from data import digits

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=32)
options = parser.parse_args()
net = nn.Sequential(nn.Conv2d(1, 512, 3), nn.ReLU(), nn.Conv2d(512, 512, 3)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for x, y in torch.utils.data.DataLoader(digits(options.size), 64, num_workers=4):
    loss = net(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DATA = """
import torch
from torchvision import datasets, transforms

def digits(size):
    change = transforms.Compose([transforms.ToTensor()])
    return datasets.MNIST("data", transform=change)
"""
RESIZE = "transforms.ToTensor()", "transforms.Resize({}), transforms.ToTensor()"


def resized(size: str) -> str:
    return DATA.replace(RESIZE[0], RESIZE[1].format(size))


@pytest.mark.parametrize(
    ("data", "severity"),
    [
        (DATA, "hint"),
        (DATA.replace("MNIST", "FashionMNIST"), "hint"),
        (resized("32"), "hint"),
        (resized("(28, 28)"), "hint"),
        (resized("224"), "info"),
        (resized("size"), "info"),
        (DATA.replace("MNIST", "CIFAR10"), "info"),
        (DATA.replace("datasets.MNIST(", "(datasets.MNIST if size < 40 else datasets.SVHN)("), "info"),
        (DATA + "\nclass Photos(torch.utils.data.Dataset):\n    pass\n", "hint"),  # which nobody takes
        (
            DATA.replace("return ", "return Photos(size) or ")
            + "\nclass Photos(torch.utils.data.Dataset):\n    pass\n",
            "info",
        ),
    ],
)
def test_digits(tmp_path: Path, data: str, severity: str) -> None:
    folder = write(tmp_path, {"data.py": data, "train.py": SCRIPT})
    found = findings_in(folder, "train.py", {"PA301", "PA304"})
    assert {(finding.rule, finding.severity) for finding in found} == {("PA301", severity), ("PA304", severity)}
