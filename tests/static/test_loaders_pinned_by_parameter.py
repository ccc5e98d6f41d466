"""PA104 where a function makes the loaders and pins unless it is told not to."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.project.loader_marks import marks_of_loaders
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

ENGINE = """
import torch

def train(model, loader, optimizer):
    for x, y in loader:
        model(x.cuda(), y.cuda()).backward()
        optimizer.step()
"""
DATA = """
from torch.utils.data import DataLoader

def loader_of(images, pin_memory=True):
    return DataLoader(images, 32, num_workers=4, pin_memory=pin_memory)
"""
SET_WHERE_GPU = """
import torch
from torch.utils.data import DataLoader

def loader_of(images, few=False):
    pin_memory = torch.cuda.is_available()
    return DataLoader(images, 32, num_workers=4, pin_memory=pin_memory)
"""
SCRIPT = """
from data import loader_of
from engine import train

train(Net(), loader_of(images), optimizer)
"""


BY_FLAG = """
import torch
from torch.utils.data import DataLoader

use_cuda = torch.cuda.is_available()

def loader_of(images, args=None):
    return DataLoader(images, 32, num_workers=4, pin_memory=use_cuda)
"""
PASSED = """
from torch.utils.data import DataLoader

def loader_of(images, use_cuda=False):
    return DataLoader(images, 32, num_workers=4, pin_memory=use_cuda)
"""
ON_GPU = "import torch\nuse_cuda = not args.no_cuda and torch.cuda.is_available()\n"


@pytest.mark.parametrize(
    ("data", "script", "is_told"),
    [
        (DATA, SCRIPT, True),
        (SET_WHERE_GPU, SCRIPT, True),
        (
            SET_WHERE_GPU.replace("torch.cuda.is_available()", "True if torch.cuda.is_available() else False"),
            SCRIPT,
            True,
        ),
        (SET_WHERE_GPU.replace("torch.cuda.is_available()", "params.cuda"), SCRIPT, True),
        (SET_WHERE_GPU.replace("torch.cuda.is_available()", "decide()"), SCRIPT, False),
        (SET_WHERE_GPU.replace("    return", "    if few:\n        pin_memory = False\n    return"), SCRIPT, False),
        (DATA.replace("pin_memory=True", "pin_memory=False"), SCRIPT, False),
        (DATA.replace("pin_memory=True", "pin_memory"), SCRIPT, False),
        (DATA, SCRIPT.replace("loader_of(images)", "loader_of(images, pin_memory=False)"), False),
        (DATA + "\nothers = DataLoader(pairs, 32)\n", SCRIPT, True),  # which the training is not handed
        (BY_FLAG, SCRIPT, True),
        (BY_FLAG.replace("torch.cuda.is_available()", "False"), SCRIPT, False),
        (BY_FLAG.replace("torch.cuda.is_available()", "decide()"), SCRIPT, False),
        (BY_FLAG.replace("memory=use_cuda", "memory=args.use_cuda"), SCRIPT, True),
        (BY_FLAG.replace("memory=use_cuda", "memory=args.use_cuda") + "    args.use_cuda = False\n", SCRIPT, False),
        (PASSED, SCRIPT, False),
        (PASSED.replace("=False", ""), SCRIPT.replace("images)", "images, args.fast)"), False),
        (PASSED.replace("=False", ""), ON_GPU + SCRIPT.replace("images)", "images, use_cuda)"), True),
        (PASSED, ON_GPU + SCRIPT.replace("images)", "images, use_cuda=use_cuda)"), True),
        (PASSED.replace("=False", "=True"), SCRIPT, True),
        (
            PASSED,
            ON_GPU.replace("not args.no_cuda", "args.fast") + SCRIPT.replace("images)", "images, use_cuda)"),
            False,
        ),
        (
            PASSED.replace("    return", "    use_cuda = False\n    return"),
            SCRIPT.replace("images)", "images, True)"),
            False,
        ),
    ],
)
def test_loaders_that_pin_unless_a_call_says_otherwise(tmp_path: Path, data: str, script: str, is_told: bool) -> None:
    for name, text in {"engine.py": ENGINE, "data.py": data, "script.py": script}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("engine.py", ENGINE, project.seen_from(tmp_path / "engine.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told


TENSORS = """
import torch

def collate(samples):
    images = [image for image, _ in samples]
    images = torch.stack(images)
    return images, torch.tensor([label for _, label in samples])
"""
COLLATING = """
from torch.utils.data import DataLoader
from data import collate
from engine import train

loader = DataLoader(pairs, 32, pin_memory=True, collate_fn=collate)
tests = DataLoader(others, 32)
train(Net(), loader, optimizer)
"""


@pytest.mark.parametrize(
    ("data", "is_told"),
    [
        (TENSORS, True),
        (TENSORS.replace("return images, torch.tensor(", "return images, list("), False),
        (TENSORS.replace("images = torch.stack(images)", "images = pad(images)"), False),
    ],
)
def test_a_third_file_collates_tensors(tmp_path: Path, data: str, is_told: bool) -> None:
    for name, text in {"engine.py": ENGINE, "data.py": data, "script.py": COLLATING}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("engine.py", ENGINE, project.seen_from(tmp_path / "engine.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told


FITTING = """
import torch

def fit(train_loader, model, optimizer):
    for epoch in range(100):
        train_epoch(model, train_loader, optimizer)

def train_epoch(model, loader, optimizer):
    for x, y in loader:
        model(x.cuda(), y.cuda()).backward()
        optimizer.step()
"""
CALLING = """
from torch.utils.data import DataLoader
from engine import fit

loader = DataLoader(pairs, 32, pin_memory=%s)
tests = DataLoader(others, 32)
fit(loader, Net(), optimizer)
"""


@pytest.mark.parametrize(
    ("engine", "pins", "is_told"),
    [
        (FITTING, "True", True),
        (FITTING, "False", False),
        (FITTING + "\ntrain_epoch(net, batches, optimizer)\n", "True", False),
        (FITTING + "\nways = {'epoch': train_epoch}\n", "True", False),
        (
            FITTING.replace("train_epoch(model, train_loader,", "train_epoch(model, shuffle(train_loader),"),
            "True",
            False,
        ),
    ],
)
def test_a_function_hands_on_the_loader_that_it_is_handed(
    tmp_path: Path, engine: str, pins: str, is_told: bool
) -> None:
    for name, text in {"engine.py": engine, "script.py": CALLING % pins}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("engine.py", engine, project.seen_from(tmp_path / "engine.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told


def test_a_data_set_with_transforms_in_the_call_of_its_loader() -> None:
    """Brackets in brackets: of the set, of a row of transforms, of one of them, and of what that is given."""
    made = "DataLoader(Digits('data', transform=Compose([ToTensor(), Normalize((0.13,), (0.3,))])), 64, **options)"
    text = f"options = {{'num_workers': 1, 'pin_memory': True}} if cuda else {{}}\nloader = {made}\n"
    assert marks_of_loaders(text.encode()) & {"pinned loaders", "pageable loaders"} == {"pinned loaders"}


TAKEN_OUT = """
from torch.utils.data import DataLoader
from engine import train

# loader = DataLoader(images, 32, %s)
train(Net(), %s, optimizer)
"""


@pytest.mark.parametrize(
    ("taken_out", "given", "is_told"),
    [
        ("pin_memory=True", "Images(32)", False),  # what yields batches is no loader
        ("num_workers=4", "DataLoader(images, 32, pin_memory=True)", True),
        ("pin_memory=True", "DataLoader(images, 32, pin_memory=True)", True),
    ],
)
def test_a_loader_in_a_comment_pins_nothing(tmp_path: Path, taken_out: str, given: str, *, is_told: bool) -> None:
    for name, text in {"engine.py": ENGINE, "script.py": TAKEN_OUT % (taken_out, given)}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("engine.py", ENGINE, project.seen_from(tmp_path / "engine.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told


STEPS = """
from base import Tool

class Classifier(Tool):
    def train_one_epoch(self, epoch, loader):
        for x, y in loader:
            loss = self.model(x.cuda(), y.cuda())
            loss.backward()
            self.optimizer.step()
"""
BASE = """
class Tool:
    def fit(self, epochs, train_loader):
        for epoch in range(epochs):
            self.train_one_epoch(epoch, train_loader)

    def train_one_epoch(self, epoch, loader):
        raise NotImplementedError
"""
FITS = """
from torch.utils.data import DataLoader
from steps import Classifier

tests = DataLoader(others, 32)
tool = {"classify": Classifier}[args.task]()
tool.fit(10, train_loader=DataLoader(pairs, 32, num_workers=4, pin_memory=True))
"""


@pytest.mark.parametrize(
    ("steps", "base", "script", "is_told"),
    [
        (STEPS, BASE, FITS, True),
        (STEPS, BASE, FITS.replace("=True", "=False"), False),
        (STEPS, BASE, FITS + "tool.fit(1, tests)\n", False),
        (STEPS, BASE, FITS + "model.fit()\n", True),  # passes too little to run it
        (STEPS, BASE, FITS + "tool.fit(*given)\n", False),
        (STEPS, BASE, FITS + "tool.train_one_epoch(0, tests)\n", False),
        (STEPS + "        self.train_one_epoch(epoch, self.more)\n", BASE, FITS, False),
        (STEPS.replace("    def", "    @logged\n    def"), BASE, FITS, False),
        (STEPS, BASE.replace("epoch, train_loader)", "epoch, prepare(train_loader))"), FITS, False),
    ],
)
def test_a_method_is_handed_loaders_through_its_base(
    tmp_path: Path, steps: str, base: str, script: str, is_told: bool
) -> None:
    for name, text in {"steps.py": steps, "base.py": base, "script.py": script}.items():
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("steps.py", steps, project.seen_from(tmp_path / "steps.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA104"]))) is is_told
