"""An error that ranks share is said once; one that a rank has alone is said by it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.cli.one_voice import HEAR_SECONDS, speaking
from perfaudit.distributed.launch import Launcher, RankPlace


class Clock:
    """Each sleep may let another rank do something."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.now, self.meanwhile = 0.0, meanwhile

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()


def place(rank: int) -> RankPlace:
    return RankPlace(rank, 2, rank, 2, "0123abcd", "A_VARIABLE_OF_NOBODY")


def said_by(rank: int, words: str, base: Path, clock: Clock) -> bool:
    with speaking(place(rank), words, base, clock, clock.sleep) as is_ours:
        return is_ours


def test_the_first_rank_says_what_all_have_and_leaves_nothing_behind(tmp_path: Path) -> None:
    said = []
    others = Clock()
    first = Clock(lambda: said.append(said_by(1, "no such file", tmp_path, others)))
    assert said_by(0, "no such file", tmp_path, first)
    assert said == [False]
    assert first.now < HEAR_SECONDS
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_comes_first_waits_for_the_first_one(tmp_path: Path) -> None:
    leave, quick = threading.Event(), Clock()

    def first_one() -> None:
        with speaking(place(0), "no such file", tmp_path, quick, quick.sleep):
            leave.wait()

    thread = threading.Thread(target=first_one)

    def comes() -> None:
        thread.start()
        while not list(tmp_path.glob("*/said")):
            leave.wait(0.001)

    assert not said_by(1, "no such file", tmp_path, Clock(comes))
    leave.set()
    thread.join()


def test_what_a_rank_has_alone_it_says(tmp_path: Path) -> None:
    clock = Clock()
    assert said_by(1, "no such file", tmp_path, clock)
    assert clock.now >= HEAR_SECONDS


def test_a_rank_with_another_error_than_the_first_one_says_its_own(tmp_path: Path) -> None:
    said = []
    first = Clock(lambda: said.append(said_by(1, "other.py: no such file", tmp_path, Clock())))
    assert said_by(0, "train.py: no such file", tmp_path, first)
    assert said == [True]


def test_what_another_start_says_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    with speaking(place(0), "no such file", tmp_path, clock, clock.sleep):
        monkeypatch.setattr("perfaudit.distributed.launch.launcher_of", lambda pid, variable: Launcher(1, 1, "another"))
        assert said_by(1, "no such file", tmp_path, Clock())


def test_without_a_launcher_nobody_waits(tmp_path: Path) -> None:
    with speaking(RankPlace(), "no such file", tmp_path) as is_ours:
        assert is_ours
    assert list(tmp_path.iterdir()) == []
