"""What only a CUDA device can show. Each has a sibling that runs without one (tests/knobs, tests/target)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 900, 10))


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(256, 3, 32, 32), torch.randint(0, 10, (256,))), batch_size=32)
"""


def test_cudnn_is_searched_on_a_cuda_device(project: Callable[..., Path], perfaudit: Callable[..., Any]) -> None:
    project(**{"train.py": TRAIN})
    report = json.loads(perfaudit("tune", "train.py", "--cudnn", "--budget", "30s", "--format", "json").out)
    assert {t["settings"]["benchmark"] for t in report["trials"] if t["status"] == "ok"} == {False, True}


def test_pinned_memory_and_peak_of_the_allocator(project: Callable[..., Path], perfaudit: Callable[..., Any]) -> None:
    project(**{"train.py": TRAIN})
    report = json.loads(
        perfaudit("tune", "train.py", "--dataloader", "--batch-size", "--budget", "60s", "--format", "json").out
    )
    assert {t["settings"].get("pin_memory") for t in report["trials"]} >= {True, False}
    peaks = [t["peak_memory_bytes"] for t in report["trials"] if t["knob"] == "batch_size" and t["peak_memory_bytes"]]
    assert len(peaks) >= 2 and min(peaks) > 0


def test_the_update_of_an_average_is_timed_by_events(
    project: Callable[..., Path], perfaudit: Callable[..., Any]
) -> None:
    project(**{"train.py": TRAIN})
    report = json.loads(perfaudit("tune", "train.py", "--ema", "--budget", "60s", "--format", "json").out)
    added = [t["added_seconds"][0] for t in report["trials"] if t["added_seconds"]]
    assert added and all(seconds > 0 for seconds in added)
