"""The gate against itself runs what a gate runs: one side loaded from a worktree that holds the code as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from git_repository import Repository, settled

from perfaudit.config import Config
from perfaudit.gate import self_test as module
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.records import TargetRecord
from perfaudit.gate.request import Request
from perfaudit.gate.self_test import self_test
from perfaudit.gate.settings import GateSettings
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target
from perfaudit.verdicts import CountersVerdict, Gate

FAILS = "building train.py: FileNotFoundError: [Errno 2] No such file or directory: 'data/x.bin'"


class Timed:
    """In place of measuring: what it was told, and what the base had in its files at that moment."""

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self.relocated: list[tuple[str, str] | None] = []
        self.texts: list[str] = []
        self.linked: list[bool] = []
        self.failure = ""

    def __call__(
        self, targets: list[Target], base: Checkout | None, records: list[TargetRecord], *rest: Any, **named: Any
    ) -> None:
        folder = base.folder if base else Path.cwd()
        self.folders.append(folder)
        self.relocated.append(base.roots if base else None)
        self.texts.append((folder / targets[0].file).read_text())
        self.linked.append((folder / "data").is_symlink())
        if self.failure:
            records[0].failures["base"] = self.failure


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timed:
    settled(monkeypatch, tmp_path / "temporary")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("train.py").write_text("as it is")
    fake = Timed()
    monkeypatch.setattr(module, "time_targets", fake)
    return fake


def told(*layers: str, links: tuple[str, ...] = ()) -> Gate:
    settings = GateSettings(layers=layers, links=links)
    report = self_test(Request((Target("train.py"),), settings, Config()), 2, Watch())
    assert report.gate is not None
    return report.gate


def test_one_side_is_loaded_from_a_worktree_with_the_working_files(timed: Timed, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "project")
    repository.commit(**{"train.py": "committed", ".gitignore": "data\n"})
    repository.write(**{"train.py": "as it is", "data/x.bin": "pixels"})
    assert told("time", links=("data",)).notes == ()
    top = timed.folders[0]
    assert top != repository.folder and not top.exists()
    assert timed.folders == [top, top]
    assert timed.relocated == [(str(repository.folder), str(top))] * 2
    assert (timed.texts, timed.linked) == (["as it is"] * 2, [True] * 2)
    assert len(repository.worktrees()) == 1


def test_data_that_git_ignores_is_asked_for(timed: Timed, tmp_path: Path) -> None:
    Repository(tmp_path / "project").commit()
    timed.failure = FAILS
    gate = told("time")
    assert gate.verdict == "failed"
    assert gate.times[0].reason.endswith(
        "'data/x.bin'; what git ignores, such as data, is not in the reference: --link FOLDER puts it there"
    )


def test_without_a_commit_both_sides_are_this_folder_and_that_is_said(timed: Timed, tmp_path: Path) -> None:
    said = told("time").notes
    Repository(tmp_path / "project")
    said += told("time").notes
    assert timed.folders == [tmp_path / "project"] * 4
    assert timed.relocated == [None] * 4
    for note, why in zip(said, ("project: not in a git repository", "project: no commit yet"), strict=True):
        assert note.startswith("both sides were loaded from this folder, because there is no commit (")
        assert why in note


def test_counters_need_no_worktree(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise AssertionError("a worktree is made")

    monkeypatch.setattr(module, "copy_of_code", fails)
    monkeypatch.setattr(module, "_counters", lambda *_: CountersVerdict("train.py", "pass"))
    assert told("counters").verdict == "pass"
    assert timed.folders == []
