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
    folder = project(**{"train.py": script, "net.py": NET, "engine.py": ENGINE, **settings})
    path = folder / "train.py"
    source = Source(
        "train.py", path.read_text(), Project(sorted(folder.glob("*.py")), folders=[folder]).seen_from(path)
    )
    found = list(run_checks(source, all_rules(), frozenset(["PA301", "PA304"])))
    assert {(each.rule, each.severity == "hint") for each in found} == {("PA301", is_hint), ("PA304", is_hint)}
