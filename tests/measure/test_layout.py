"""Memory is scattered by sizes drawn anew for each child."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.measure.child import Child
from perfaudit.measure.lab import build_command
from perfaudit.measure.layout import PIECES, SIZES, layout_padding
from perfaudit.measure.ledger import Variant

TRAIN = """
import gc

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def build_model():
    held = [item for item in gc.get_objects() if type(item).__name__ == "Holder"]
    with open("padding.txt", "w") as padding:
        print([len(piece) for holder in held for piece in holder.padding], end="", file=padding)
    return nn.Linear(300, 3)

def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(16, 300), torch.randint(0, 3, (16,))), batch_size=8)
"""


def test_sizes_are_drawn_anew_and_not_from_the_generator_of_the_user() -> None:
    random.seed(1)
    before = random.getstate()
    drawn = [[len(piece) for piece in layout_padding()] for _ in range(5)]
    assert random.getstate() == before
    assert len({tuple(sizes) for sizes in drawn}) == 5
    assert all(PIECES[0] <= len(sizes) <= PIECES[1] for sizes in drawn)
    assert all(SIZES[0] <= size <= SIZES[1] for sizes in drawn for size in sizes)


@pytest.mark.parametrize(("end", "sizes"), [(min, [16] * 5), (max, [200_000] * 60)])
def test_the_least_and_the_most_that_is_drawn(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[int, int], int], sizes: list[int]
) -> None:
    class Drawing:
        randint = staticmethod(end)

    monkeypatch.setattr(random, "SystemRandom", Drawing)
    assert [len(piece) for piece in layout_padding()] == sizes


@pytest.mark.slow
def test_memory_of_a_child_is_scattered_before_it_builds(project: Callable[..., Path]) -> None:
    project(**{"train.py": TRAIN})
    sizes = []
    for wanted in (False, True, True):
        with Child() as child:
            plain = Variant("plain", "", {})
            child.ask(build_command({"file": "train.py", "names": {}}, plain, "cpu", scattered=wanted), 120)
            sizes.append(Path("padding.txt").read_text())
    assert sizes[0] == "[]"
    assert len(set(sizes)) == 3
