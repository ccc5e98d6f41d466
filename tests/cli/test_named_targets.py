"""Names of `[tool.perfaudit.targets]` where a script is typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.cli import one_scan, tune
from perfaudit.target.names import Target

Project = Callable[..., Path]
PROJECT = """
[tool.perfaudit.targets]
small = "train.py --epochs 1"
gone = "missing.py"
package = "-m pkg.train config.yaml"
nets = "model.py"
"""
FACTORIES = "def build_model(): ...\ndef build_dataloader(): ...\n"


@pytest.fixture
def here(project: Project) -> Path:
    return project(
        **{"pyproject.toml": PROJECT, "train.py": "import torch\n", "pkg/train.py": "", "model.py": FACTORIES}
    )


@pytest.mark.parametrize(
    ("text", "arguments", "target"),
    [
        ("small", (), Target("train.py", {}, ("--epochs", "1"), name="small")),
        ("small", ("--seed", "2"), Target("train.py", {}, ("--epochs", "1", "--seed", "2"), name="small --seed 2")),
        ("package", (), Target("pkg/train.py", {}, ("config.yaml",), "pkg.train", "package")),
        ("nets", (), Target("model.py")),
    ],
)
def test_a_name_is_tuned_and_measured(here: Path, text: str, arguments: tuple[str, ...], target: Target) -> None:
    assert tune.target_named(text, [], arguments, False) == target
    typed = one_scan._target_by_name([text], arguments)
    assert typed is not None
    assert one_scan._file_of(typed) == target.file
    assert one_scan._target_by_name(["train.py"], ()) is None


def test_a_name_is_run(here: Path, perfaudit: Callable[..., Any]) -> None:
    done = perfaudit("run", "gone")
    assert (done.code, done.err) == (2, "perfaudit: missing.py: no such file\n")
