"""PA104 where a script imports everything from the file that trains, and hands it a loader."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

ENGINE = """
import torch

def train(model, loader, optimizer):
    for x, y in loader:
        model(x.cuda(), y.cuda()).backward()
        optimizer.step()

def test(model):
    for x in torch.utils.data.DataLoader(Photos(), 1):
        print(model(x.cuda()).argmax())
"""
SCRIPT = """
from torch.utils.data import DataLoader
from engine import *
from others import *

train(Net(), DataLoader(Photos(), 32, num_workers=4, pin_memory=True), optimizer)
"""


@pytest.mark.parametrize(
    ("script", "others", "is_told"),
    [
        (SCRIPT, "def show(x): ...\n", True),
        (SCRIPT.replace(", pin_memory=True", ""), "def show(x): ...\n", False),
        (SCRIPT, "def train(model, loader, optimizer): ...\n", False),  # of the other file
        (SCRIPT.replace("\ntrain(", "\ntrain = wrap(train)\ntrain("), "def show(x): ...\n", False),
        (SCRIPT, "__all__ = ['show']\ndef train(model, loader, optimizer): ...\ndef show(x): ...\n", True),
        (SCRIPT, "__all__ = names()\ndef train(model, loader, optimizer): ...\n", False),
    ],
)
def test_a_loader_is_handed_to_what_a_star_import_takes(
    tmp_path: Path, script: str, others: str, is_told: bool
) -> None:
    for name, text in {"engine.py": ENGINE, "script.py": script, "others.py": others}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("engine.py", ENGINE, project.seen_from(tmp_path / "engine.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told


@pytest.mark.parametrize(
    ("engine", "script", "is_told"),
    [
        ("__all__ = ['train']\n" + ENGINE, SCRIPT, True),
        ("__all__ = ['test']\n" + ENGINE, SCRIPT, False),
        (ENGINE.replace("train(", "_train("), SCRIPT.replace("\ntrain(", "\n_train("), False),
    ],
)
def test_a_star_import_takes_what_a_module_gives(tmp_path: Path, engine: str, script: str, is_told: bool) -> None:
    for name, text in {"engine.py": engine, "script.py": script, "others.py": ""}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("engine.py", engine, project.seen_from(tmp_path / "engine.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told


DATA = """
from torch.utils.data import DataLoader

def get_data(path):
    return DataLoader(Photos(path), 32, num_workers=4, pin_memory=True)
"""
TRAINING = """
import torch
from data import *
from others import *

loader = get_data("photos")
for x, y in loader:
    model(x.cuda(), y.cuda()).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("training", "others", "is_told"),
    [
        (TRAINING, "def show(x): ...\n", True),
        (TRAINING.replace("get_data(", "others.get_data("), "def show(x): ...\n", False),
        (TRAINING, DATA.replace("pin_memory=True", ""), False),  # of the other file
        (TRAINING.replace("from others", "from installed"), "def show(x): ...\n", False),  # which may have one, too
        (TRAINING.replace("\nloader", "\nget_data = wrap(get_data)\nloader"), "def show(x): ...\n", False),
    ],
)
def test_a_loader_is_made_by_what_a_star_import_takes(
    tmp_path: Path, training: str, others: str, is_told: bool
) -> None:
    for name, text in {"data.py": DATA, "training.py": training, "others.py": others}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("training.py", training, project.seen_from(tmp_path / "training.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told


@pytest.mark.parametrize(
    ("data", "others", "name", "is_told"),
    [
        ("__all__ = ['get_data']\n" + DATA, "", "get_data", True),
        (DATA, "__all__ = ('show',)\n" + DATA.replace(", pin_memory=True", ""), "get_data", True),
        (DATA, "__all__ = []\n__all__ += ['get_data']\n" + DATA, "get_data", False),  # it may give the name or not
        ("__all__ = ['Photos']\n" + DATA, "", "get_data", False),
        (DATA.replace("get_data", "_get_data"), "", "_get_data", False),
    ],
)
def test_a_loader_is_made_by_what_a_module_gives_to_a_star_import(
    tmp_path: Path, data: str, others: str, name: str, is_told: bool
) -> None:
    training = TRAINING.replace("get_data", name)
    for file, text in {"data.py": data, "training.py": training, "others.py": others}.items():
        (tmp_path / file).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("training.py", training, project.seen_from(tmp_path / "training.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told
