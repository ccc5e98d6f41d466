"""PA102 where the step makes a new tensor of each batch before the copy: pinning the batch would speed nothing up."""

from __future__ import annotations

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

TRAIN = """
import torch
from torch.utils.data import DataLoader

device = torch.device("cuda")

def train(model, loader, optimizer):
    for x in loader:
        {body}
        model(x).backward()
        optimizer.step()

def main(model, images, optimizer):
    loader = DataLoader(images, batch_size=8, num_workers=4)
    train(model, loader, optimizer)
"""


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("x = x.transpose(1, 0).contiguous().to(device)", False),
        ("x = x.long().transpose(1, 0).contiguous()\n        x = x.to(device)", False),
        ("x = x.permute(0, 2, 1)\n        x = x.contiguous()\n        x = x.cuda()", False),
        ("x = x.T.contiguous().to(device)", False),
        ("x = x[:, 0].contiguous().to(device)", False),
        ("x = x.contiguous(memory_format=torch.channels_last).to(device)", False),
        ("x = x.double().to(device)", False),
        ("x = x.to(device)", True),
        ("x = x.long().to(device)", True),
        ("x = x.contiguous().to(device)", True),
        ("x = x[0].contiguous().to(device)", True),
        ("x = x[:, None].contiguous().to(device)", True),
        ("x = x.transpose(1, 0).to(device)", True),
        ("x = x.to(device).transpose(1, 0).contiguous()", True),
        ("y = x.to(device)\n        x = x.transpose(1, 0).contiguous().to(device)", True),
        ("y = send_to_device(x)\n        x = x.transpose(1, 0).contiguous().to(device)", True),
    ],
)
def test_batches_that_are_pageable_again_when_they_are_copied(body: str, is_told: bool) -> None:
    source = Source("a.py", TRAIN.format(body=body))
    assert bool(run_checks(source, all_rules(), frozenset(["PA102"]))) is is_told


def test_an_evaluation_that_copies_the_batch_itself_gains_by_pinning() -> None:
    evaluate = "    for x in loader:\n        model(x.to(device)).backward()\n"
    text = TRAIN.format(body="x = x.transpose(1, 0).contiguous().to(device)")
    assert not run_checks(Source("a.py", text), all_rules(), frozenset(["PA102"]))
    assert run_checks(Source("a.py", text + evaluate), all_rules(), frozenset(["PA102"]))
