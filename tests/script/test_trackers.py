"""What a script says to its trackers does not switch them on."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from perfaudit.script.trackers import overrule_arguments

WANDB = "calls = []\ndef init(project=None, *, mode=None):\n    calls.append((project, mode))\n    return 'a run'\n"
MLFLOW = "calls = []\ndef set_tracking_uri(uri):\n    calls.append(uri)\n"


@pytest.fixture(autouse=True)
def _own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()


def test_an_argument_that_would_switch_a_tracker_on_is_overruled(tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text(WANDB)
    (tmp_path / "mlflow.py").write_text(MLFLOW)
    overrule_arguments()
    wandb, mlflow = importlib.import_module("wandb"), importlib.import_module("mlflow")
    assert wandb.init("mine", mode="online") == "a run"
    wandb.init(project="mine")
    mlflow.set_tracking_uri("https://tracking.example")
    assert (wandb.calls, mlflow.calls) == ([("mine", "disabled")] * 2, [])


def test_a_module_of_the_same_name_that_is_no_tracker_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text("")
    (tmp_path / "mlflow.py").write_text("")
    overrule_arguments()
    assert not hasattr(importlib.import_module("wandb"), "init")
    assert not hasattr(importlib.import_module("mlflow"), "set_tracking_uri")
