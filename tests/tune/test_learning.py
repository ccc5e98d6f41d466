"""What a tuning learns of the source: findings whose lines never run are no candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.knobs import Survey
from perfaudit.measure.clock import Deadline, WallClock
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target
from perfaudit.tune.first_steps import build
from perfaudit.tune.learning import learn
from perfaudit.tune.session import Session
from perfaudit.tune.workshop import Children

pytest.importorskip("torch")

GELU = "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))"
NETS = f"""
import math
import torch
from torch import nn


class Used(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x):
        x = self.layer(x)
        return {GELU}


class Unused(nn.Module):
    def forward(self, x):
        return {GELU} * 2
"""
TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from nets import Used


def build_model():
    return Used()


def build_dataloader():
    return DataLoader(TensorDataset(torch.rand(16, 8), torch.rand(16, 1)), batch_size=4)
"""


def test_only_what_runs_is_a_candidate(project: Callable[..., Path]) -> None:
    project(**{"train.py": TRAIN, "nets.py": NETS})
    target, watch = Target("train.py", {}), Watch()
    session = Session(target, Children(target, "cpu", watch, 120.0), watch)
    profile = build(target, session.workshop, watch, 120.0, Deadline(120.0, WallClock()))
    Path("other.py").write_text(Path("nets.py").read_text())  # the same statements, of which this file runs none
    facts = profile.survey.facts
    profile = replace(profile, survey=Survey(replace(facts, project_files=(*facts.project_files, "other.py"))))
    survey = learn(session, profile, ["optimizer"]).survey
    found = [(f.location.path, f.location.line) for f in survey.findings if f.rule == "PA204" and f.location]
    assert found == [("nets.py", 13), ("nets.py", 18), ("other.py", 13), ("other.py", 18)]
    survey = learn(session, profile, ["fusion"]).survey
    found = [(f.location.path, f.location.line) for f in survey.findings if f.rule == "PA204" and f.location]
    assert found == [("nets.py", 13)]
    assert survey.patchable("PA204") == 1
