"""Findings in code that nothing of the project runs are hints; where the scan does not show all uses, nothing is unused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.static.scan import Options, scan

pytestmark = pytest.mark.usefixtures("in_this_process")

Project = Callable[..., Path]

# PA404 in a function, and in a method.
AVERAGES = """
import torch

def update_ema(target, source, rate):
    for t, s in zip(target.parameters(), source.parameters()):
        t.detach().mul_(rate).add_(s, alpha=1 - rate)
"""
KEEPER = """
import torch
from torch import nn

class Keeper(nn.Module):
    def average(self, target, source):
        for t, s in zip(target.parameters(), source.parameters()):
            t.detach().mul_(0.9).add_(s, alpha=0.1)
"""
SCRIPT = """
{line}

if __name__ == "__main__":
    main()
"""


def severities(folder: str = ".") -> dict[str, tuple[str, str]]:
    found = scan([folder], Options(selected=frozenset({"PA404"}), processes=1)).findings
    return {f.location.path: (f.severity, f.note) for f in found if f.location is not None}


HINT = ("hint", "nothing in this project runs `update_ema`")
SAID = ("warning", "")


@pytest.mark.parametrize(
    ("line", "is_used"),
    [
        ("import other", False),
        ("# from averages import update_ema", False),
        ("from torch_utils import update_ema", True),  # from where, nobody here can say
        ("from averages import update_ema", True),
        ("from averages import *\nupdate_ema(a, b, 0.9)", True),
        ("from averages import *", False),
        ("import averages\naverages.update_ema(a, b, 0.9)", True),
        ("import averages as av\nav.update_ema(a, b, 0.9)", True),
        ("import averages\nmethods = {'ema': averages}\nmethods[name].update_ema(a, b, 0.9)", True),
        ("import averages\nlog.update(averages)", False),
        ("trainer.update_ema(a, b)", False),  # a method of something else
        ("import averages\nf = getattr(averages, 'update_ema')", True),
        ("import averages\nf = getattr(averages, name)", True),
        ("import importlib\nm = importlib.import_module(name)", True),
        ("from averages import other,\\\n    update_ema", True),  # continued by a backslash
        ("def update_ema(a, b, rate): ...\nupdate_ema(a, b, 0.9)", False),  # its own
        ("from mine import update_ema", False),
    ],
)
def test_a_function_that_no_file_names(project: Project, line: str, is_used: bool) -> None:
    project(**{"averages.py": AVERAGES, "mine.py": "def update_ema(a): ...", "main.py": SCRIPT.format(line=line)})
    assert severities() == {"averages.py": SAID if is_used else HINT}


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (AVERAGES + "\ndef helper(a, b):\n    update_ema(a, b, 0.9)\n", HINT[1]),  # used by what is unused
        (AVERAGES + "\nupdate_ema(a, b, 0.9)\n", ""),
        (AVERAGES + "\n__all__ = ['update_ema']\n", ""),
        (AVERAGES.replace("def", "@register\ndef"), ""),
        (AVERAGES.replace("def", "@torch.no_grad()\ndef"), HINT[1]),
        (AVERAGES.replace("update_ema", "main"), ""),
        (KEEPER, "nothing in this project runs `Keeper`"),
        (KEEPER + "\nkeeper = Keeper()\n", "nothing in this project runs `average`"),
        (KEEPER + "\nkeeper = Keeper()\nkeeper.average(a, b)\n", ""),
        (KEEPER.replace("nn.Module", "Callback") + "\nkeeper = Keeper()\n", ""),  # may be called by its base
    ],
)
def test_what_a_file_does_not_use_itself(project: Project, text: str, note: str) -> None:
    project(**{"averages.py": text, "train.py": SCRIPT.format(line="import os")})
    assert severities()["averages.py"][1] == note


def test_who_else_may_use_it(project: Project) -> None:
    folder = project(**{"pkg/averages.py": AVERAGES, "pkg/run.py": SCRIPT.format(line="")})
    assert severities()["pkg/averages.py"] == HINT
    assert severities("pkg")["pkg/averages.py"] == HINT  # nothing lies beside it
    project(**{"notes.ipynb": "{}"})
    assert severities("pkg")["pkg/averages.py"] == SAID  # a part of the project
    project(**{"pkg/__init__.py": "", "setup.py": ""})
    assert severities()["pkg/averages.py"] == SAID  # a package for others
    (folder / "setup.py").unlink()
    (folder / "pyproject.toml").write_text("[tool.ruff]\n")
    assert severities()["pkg/averages.py"] == HINT
    (folder / "pyproject.toml").write_text("[project]\n")
    assert severities()["pkg/averages.py"] == SAID


def test_without_a_script_nobody_knows_what_runs(project: Project) -> None:
    project(**{"averages.py": AVERAGES})
    assert severities() == {"averages.py": SAID}


def test_a_notebook_may_use_it(project: Project) -> None:
    cell = '{"cells": [{"cell_type": "code", "source": ["from averages import update_ema\\n"]}]}'
    project(**{"averages.py": AVERAGES, "run.py": SCRIPT.format(line=""), "a.ipynb": cell})
    assert severities()["averages.py"] == SAID
