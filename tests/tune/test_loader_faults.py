"""Datasets and loaders that do something wrong, under `perfaudit tune --dataloader`: one clear line, the right exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Project = Callable[..., Path]

TRAIN = """
import os
import signal
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Data(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.zeros(4), index % 3


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(64):
            yield torch.full((4,), float(index)), index % 3


def build_model():
    return nn.Linear(4, 3)


def build_dataloader():
    return DataLoader(Data(), batch_size=8)
"""
SAMPLE = "return torch.zeros(4), index % 3"
LOADER = "DataLoader(Data(), batch_size=8)"
IN_A_WORKER = "if get_worker_info():\n            "


def changed(before: str, after: str, **more: str) -> str:
    assert TRAIN.count(before) == 1
    return TRAIN.replace(before, after)


def sample(text: str) -> str:
    """The program with this in front of making a sample."""
    return changed(SAMPLE, f"{text}\n        {SAMPLE}")


def loader(arguments: str, dataset: str = "Data()") -> str:
    return changed(LOADER, f"DataLoader({dataset}, {arguments})")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            sample("if index == 17:\n            raise OSError('corrupt image 17')"),
            "train.py: the dataloader failed: OSError: corrupt image 17 (train.py:16 in __getitem__)",
        ),
        (
            changed("torch.zeros(4), index", "torch.zeros(4 + index % 2), index"),
            "train.py: the dataloader failed: RuntimeError: stack expects each tensor to be equal size, but got [4] at "
            "entry 0 and [5] at entry 1",
        ),
        (loader("batch_size=80, drop_last=True"), "train.py: the dataloader is empty (it yields no batch)"),
        (
            loader("num_workers=1, multiprocessing_context='spawn', collate_fn=lambda batch: batch"),
            "train.py: the dataloader failed: AttributeError: Can't pickle local object 'build_dataloader.<locals>.<lambda>'",
        ),
        (
            sample(f"{IN_A_WORKER}os.kill(os.getpid(), signal.SIGBUS)").replace(
                LOADER, LOADER[:-1] + ", num_workers=1)"
            ),
            "MiB free",
        ),
        (
            sample(f"{IN_A_WORKER}time.sleep(1000)").replace(LOADER, LOADER[:-1] + ", num_workers=1)"),
            "train.py: a training step hangs, or needs longer than --timeout 3s: no answer within 3 s",
        ),
    ],
    ids=["raises", "ragged", "empty", "lambda", "bus error", "hangs"],
)
def test_a_loader_that_fails_is_one_line_and_nothing_was_measured(
    project: Project, perfaudit: Run, program: str, said: str
) -> None:
    project(**{"train.py": program})
    limit = "3s" if "hangs" in said else "20s"  # on a slow machine a worker takes seconds to die
    done = perfaudit("tune", "train.py", "--dataloader", "--budget", "20s", "--timeout", limit)
    assert said in done.err
    assert (done.code, "Traceback" in done.err) == (3, False)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            sample("if index == 17 and get_worker_info():\n            raise OSError('no handle')"),
            "loading with workers was tried and failed: dataloader: samples: OSError: in a loader worker: OSError: no handle",
        ),
        (
            loader("batch_size=8", "Stream()"),
            "each of 2 workers yields every sample again: 128 samples with 2 workers, 64 with none",
        ),
        (
            changed("for index in range(64):", "index = 0\n        while True:\n            index += 1").replace(
                "Data()", "Stream()"
            ),
            "each of 2 workers yields every sample again",
        ),
        (
            sample(f"{IN_A_WORKER}os.kill(os.getpid(), signal.SIGBUS)"),
            "loading with a worker was tried and failed: RuntimeError: DataLoader worker",
        ),
    ],
    ids=["raises in a worker", "repeats", "repeats without end", "bus error in a worker"],
)
def test_what_is_wrong_with_workers_alone_is_told_and_they_are_not_raced(
    project: Project, perfaudit: Run, program: str, said: str
) -> None:
    project(**{"train.py": program})
    done = perfaudit("tune", "train.py", "--dataloader", "--budget", "20s", "--timeout", "60s")
    assert said in " ".join(done.out.split())
    assert (done.code, "Traceback" in done.err) == (3, False)


def test_a_loader_of_one_batch_is_measured(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": loader("batch_size=64")})
    done = perfaudit("tune", "train.py", "--dataloader", "--budget", "60s", "--format", "json")
    assert done.code in (0, 1), done.err
    assert '"status": "ok"' in done.out
