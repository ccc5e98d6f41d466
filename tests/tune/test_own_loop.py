"""A file of factories that has a loop of its own: which of them is measured, and how a report says so."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.measurements import Environment, OwnLoop
from perfaudit.render.tables import own_loop_text
from perfaudit.render.text import render
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.tune.own_loop import own_loop

FACTORIES = """
import torch
from torch import nn
from torch.utils.data import DataLoader


def build_model():
    return nn.Linear(4, 2)


def build_dataloader():
    return DataLoader([torch.zeros(4)] * 8)


def training_step(model, batch):
    return model(batch).sum()
"""
LOOP = """

def main():
    model, loader = build_model(), build_dataloader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        training_step(model, batch).backward()
        optimizer.step()
"""
GUARD = '\n\nif __name__ == "__main__":\n    main()\n'
TOP = "\n".join(line.removeprefix("    ") for line in LOOP.partition("main():\n")[2].splitlines())
ROLES = ("build_model", "build_dataloader", "training_step")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FACTORIES, None),
        (FACTORIES + LOOP, None),  # nothing runs it
        (FACTORIES + LOOP + GUARD, OwnLoop("train.py", 22, "main", ROLES, "train")),
        (FACTORIES + "\n" + TOP, OwnLoop("train.py", 20, "", ROLES, "train")),
        (LOOP + GUARD, None),  # no factories
        ("def build_model(:", None),
    ],
)
def test_a_loop_that_the_file_runs_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: OwnLoop | None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    assert own_loop(Target("train.py")) == found
    assert own_loop(Target("train.py", {}, ())) is None  # its loop is what is measured
    assert own_loop(Target("train.py", {"model": "build_model"})) is None  # they are named


def test_below_a_folder_m_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m below.train` would find other modules than `python below/train.py`."""
    monkeypatch.chdir(tmp_path)
    Path("below").mkdir()
    Path("below/train.py").write_text(FACTORIES + LOOP + GUARD)
    seen = own_loop(Target("below/train.py"))
    assert seen is not None
    assert (seen.path, seen.module) == ("below/train.py", "")


SAID = "t.py builds its training by build_model and build_dataloader: these are measured, not the loop in main() (t.py:9). "
SEEN = OwnLoop("t.py", 9, "main", ("build_model", "build_dataloader"), "t")


@pytest.mark.parametrize(
    ("command", "loop", "said"),
    [
        ("tune", SEEN, SAID + "For the loop: perfaudit tune -m t"),
        (
            "tune",
            replace(SEEN, module=""),
            SAID + "For the loop: perfaudit tune t.py -- ARGS, with the script's arguments",
        ),
        ("scan", SEEN, SAID + "For the loop: perfaudit scan --measure t.py -- ARGS, with the script's arguments"),
        ("tune", None, ""),
    ],
)
def test_what_is_said_of_it(command: str, loop: OwnLoop | None, said: str) -> None:
    assert own_loop_text(Report(command, own_loop=loop)) == said


def test_it_stands_below_the_line_of_the_target() -> None:
    machine = Environment("cpu", "3.11.7", "linux", 2, 1 << 30, "2.13.0", threads=2)
    shown = render(Report("tune", target="t.py", environment=machine, own_loop=SEEN), width=200)
    first, second, *_ = shown.splitlines()
    assert first.startswith("t.py on cpu")
    assert second == SAID + "For the loop: perfaudit tune -m t"


def test_the_offered_commands_are_taken(tmp_path: Path) -> None:
    """Not only by us: the words of the line are typed."""
    (tmp_path / "train.py").write_text(FACTORIES + LOOP + GUARD)
    typed = [sys.executable, "-c", "from perfaudit.cli.tune import target_named; "
             "print(target_named('train', [], (), True), target_named('train.py', [], (), False))"]  # fmt: skip
    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-m", "train", "train.py"]
