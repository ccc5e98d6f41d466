"""Signals end the measuring, and wait for what removes and tells."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from git_repository import Repository, settled

from perfaudit.gate import worktree
from perfaudit.gate.gitref import checked_out
from perfaudit.gate.signals import ended_by_signals, hold_back


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_ends_what_runs_and_the_second_cuts_no_tidying(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    did = []
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(signal.SIGTERM)
            did.append("tidied")
    assert did == ["tidied"]
    assert signal.getsignal(number) == before


def test_the_third_ends_it_at_once() -> None:
    did = []
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        hold_back()
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            did.append("waited")
    assert did == ["waited", "waited"]


def test_one_that_is_held_back_counts_when_all_is_told() -> None:
    did = []
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        hold_back()
        signal.raise_signal(signal.SIGTERM)
        did.append("told")
    assert did == ["told"]


def test_what_was_wrong_is_told_before_one_that_waits() -> None:
    with pytest.raises(ValueError, match="full"), ended_by_signals():
        hold_back()
        signal.raise_signal(signal.SIGTERM)
        raise ValueError("full")


def test_nothing_is_held_back_from_another_run() -> None:
    hold_back()  # outside of any
    with ended_by_signals():
        hold_back()
    did = []
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
        did.append("went on")
    assert did == []


def test_one_that_comes_while_the_worktree_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(monkeypatch, tmp_path / "temporary")
    repository = Repository(tmp_path / "project")
    repository.commit(**{"a.py": "1"})
    remove = worktree.remove

    def interrupted(folder: Path) -> None:
        signal.raise_signal(signal.SIGTERM)
        remove(folder)

    monkeypatch.setattr(worktree, "remove", interrupted)
    did = []
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        with checked_out("HEAD", repository.folder):
            did.append("measured")
        did.append("told")
    assert did == ["measured", "told"]
    assert len(repository.worktrees()) == 1
    assert list((tmp_path / "temporary").iterdir()) == []
