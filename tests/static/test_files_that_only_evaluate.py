"""Findings in files that evaluate and train nothing are hints; not those of rules about evaluation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.static.purpose import purpose_of
from perfaudit.static.scan import Options, scan

pytestmark = pytest.mark.usefixtures("in_this_process")

Project = Callable[..., Path]

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))
"""  # PA204
TRAIN = """
from net import Net

if __name__ == "__main__":
    loss = Net()(x)
    loss.backward()
"""
EVALUATE = """
from net import Net

if __name__ == "__main__":
    model = Net().eval()
    model(x)
"""


def severities() -> dict[str, str]:
    found = scan(["."], Options(selected=frozenset({"PA204"}), processes=1)).findings
    return {f.location.path: f.severity for f in found if f.location is not None}


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({"net.py": MODEL, "run.py": EVALUATE}, "hint"),
        ({"net.py": MODEL, "run.py": TRAIN}, "info"),
        ({"net.py": MODEL, "run.py": EVALUATE, "main.py": TRAIN}, "info"),
        ({"net.py": MODEL}, "info"),
        ({"net.py": MODEL, "run.py": EVALUATE, "a.ipynb": "{}"}, "info"),  # which may train
        (
            {"net.py": MODEL, "run.py": EVALUATE, "README.md": "", "pyproject.toml": "[project]", "__init__.py": ""},
            "info",
        ),
        ({"net.py": MODEL + EVALUATE.replace("from net import Net", "")}, "hint"),
        ({"net.py": MODEL + TRAIN.replace("from net import Net", "")}, "info"),
        ({"net.py": MODEL, "run.py": EVALUATE + "\nmodule = importlib.import_module(name)\n"}, "info"),
        ({"eval/net.py": MODEL, "main.py": TRAIN.replace("from net", "from eval.net")}, "hint"),
    ],
)
def test_who_runs_a_file(project: Project, files: dict[str, str], severity: str) -> None:
    project(**files)
    (found,) = severities().values()
    assert found == severity


def test_rules_about_evaluation_say_it(project: Project) -> None:
    project(**{"run.py": EVALUATE.replace("model(x)", "[model(batch) for batch in loader]")})
    text = """
    import torch

    def evaluate(model, loader):
        model.eval()
        for x, y in loader:
            print(model(x).argmax(1))

    if __name__ == "__main__":
        evaluate(model, loader)
    """
    project(**{"run.py": text})
    found = scan(["."], Options(selected=frozenset({"PA801"}), processes=1)).findings
    assert [f.severity for f in found] == ["warning"]


@pytest.mark.parametrize(
    ("text", "stem", "purpose"),
    [
        ("loss.backward()", "a", (False, True, False)),
        ("# loss.backward()\nmodel.eval()", "a", (False, False, True)),
        ('"""Trainer"""\nx = 1', "a", (False, False, False)),
        ("trainer.fit(model)\nfor x in y: pass", "a", (True, True, False)),
        ("x = 1", "test_speed", (False, False, True)),
        ("x = 1", "latest", (False, False, False)),
    ],
)
def test_purposes(text: str, stem: str, purpose: tuple[bool, bool, bool]) -> None:
    found = purpose_of(text.encode(), stem)
    assert (found.is_run, found.trains, found.evaluates) == purpose
