"""PA301 and PA304 are hints where settings files keep a program on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source
from tests.static.test_programs_of_several_files import ENGINE, LOOP, NET, START

Folder = Callable[..., Path]


@pytest.mark.parametrize(
    ("settings", "is_hint"),
    [
        ({"config.json": '{"name": "net", "n_gpu": 0}'}, True),
        ({"a.yaml": "device: cpu\n"}, True),
        ({"a.yaml": "device: cpu\n", "b.yaml": "n_gpu: 0\n"}, True),
        ({"a.yaml": "device: cpu\n", "b.yaml": "device: cuda\n"}, False),
        ({"a.yaml": "n_gpu: 0\n", "b.yaml": "n_gpu: 1\n"}, False),
        ({"a.yaml": "n_gpu: 0\n", "b.yaml": "device: 0\n"}, False),
        ({"a.yaml": "n_gpu:\n"}, False),
        ({"a.yaml": "n_gpu: ${gpus}\n"}, False),
        ({"a.yaml": "lr: 0\n"}, False),
        ({}, False),
    ],
)
@pytest.mark.parametrize("script", [LOOP, START])
def test_settings_that_name_the_cpu(project: Folder, script: str, settings: dict[str, str], *, is_hint: bool) -> None:
    folder = project(**{"train.py": script, "net.py": NET, "engine.py": ENGINE, "reads.py": "import yaml", **settings})
    assert _hints(folder) == {("PA301", is_hint), ("PA304", is_hint)}


@pytest.mark.parametrize("script", [LOOP, START])
def test_settings_that_nothing_of_the_project_reads(project: Folder, script: str) -> None:
    """They are those of something else."""
    folder = project(**{"train.py": script, "net.py": NET, "engine.py": ENGINE, "a.yaml": "device: cpu\n"})
    assert _hints(folder) == {("PA301", False), ("PA304", False)}


def _hints(folder: Path) -> set[tuple[str, bool]]:
    path = folder / "train.py"
    project = Project(sorted(folder.glob("*.py")), folders=[folder])
    found = run_checks(
        Source("train.py", path.read_text(), project.seen_from(path)), all_rules(), frozenset(["PA301", "PA304"])
    )
    return {(each.rule, each.severity == "hint") for each in found}


LIGHTNING = """
import pytorch_lightning as pl
import torchvision

def main(cfg):
    trainer = pl.Trainer({given}, max_epochs=9)
    trainer.fit(Classifier(torchvision.models.resnet50()), Images(cfg.data))

if __name__ == "__main__":
    main(read("train.yaml"))
"""


@pytest.mark.parametrize(
    ("given", "says", "is_hint"),
    [
        ("gpus=cfg.get('gpu')", "gpu:\ndevice: cpu\n", True),
        ("gpus=cfg.get('gpu')", "gpu: 1\n", False),
        ("gpus=1", "device: cpu\n", False),
        ("accelerator='gpu', devices=cfg.devices", "device: cpu\n", False),
    ],
)
@pytest.mark.parametrize("rule", ["PA301", "PA304"])
def test_a_trainer_of_lightning(project: Folder, given: str, says: str, rule: str, *, is_hint: bool) -> None:
    folder = project(**{"train.py": LIGHTNING.replace("{given}", given), "train.yaml": says})
    path = folder / "train.py"
    source = Source("train.py", path.read_text(), Project([path], folders=[folder]).seen_from(path))
    found = list(run_checks(source, all_rules(), frozenset([rule])))
    assert [each.severity == "hint" for each in found] == [is_hint]
