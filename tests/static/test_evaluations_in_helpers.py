"""PA801 where a loop calls a function whose own loop evaluates: one finding; and data modules, which differentiate nothing."""

from __future__ import annotations

import pytest

from perfaudit.findings import Finding
from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

FOLDS = """
import torch
from data import DInterface
from model import MInterface

def classes_of(loader, model):
    classes = []
    for image, label in loader:
        classes.append(model(image).argmax(1).item())
    return classes

def over_folds(paths):
    for fold in range(5):
        data = DInterface(dataset="standard", fold=fold)
        data.setup()
        loader = data.val_dataloader()
        model = MInterface.load_from_checkpoint(paths[fold])
        model = model.eval()
        print(classes_of(loader, model))
"""
ONE_LOOP = """
import torch
from data import DInterface

def test(model):
    model.eval()
    for fold in range(5):
        data = DInterface(fold=fold)
        data.setup()
        for image, label in data.val_dataloader():
            print(model(image).argmax(1).item())
"""


def found(code: str) -> list[Finding]:
    return run_checks(Source("folds.py", code), all_rules(), frozenset({"PA801"}))


def test_the_loop_of_a_helper_is_told_once_where_the_model_is_called() -> None:
    (finding,) = found(FOLDS)
    assert finding.message.startswith("`model(image)` runs in eval mode")


def test_a_run_beside_the_call_of_the_helper_is_told_too() -> None:
    assert len(found(FOLDS + "        print(model(first).argmax(1).item())\n")) == 2


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        ("data.setup()", ""),
        ("data(fold)", ", if `DInterface(fold=fold)` differentiates nothing"),
        ("work(image_of(data))", ", if `DInterface(fold=fold)` differentiates nothing"),
        ("work(fold)", ", if `work(fold)` differentiates nothing"),
    ],
)
def test_what_only_gives_batches_is_not_named(line: str, condition: str) -> None:
    (finding,) = found(ONE_LOOP.replace("data.setup()", line))
    assert finding.fix is not None
    assert (finding.fix.title, finding.fix.edits) == (f"run the loop under `torch.no_grad()`{condition}", ())
