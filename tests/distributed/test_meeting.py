"""Ranks that meet in a folder: in one process here, each with a meeting of its own."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.distributed import meeting as module
from perfaudit.distributed.launch import RankPlace
from perfaudit.distributed.meeting import LONGEST_LOOK, SILENT_SECONDS, Meeting
from perfaudit.files import Refused
from perfaudit.script.scratch_folders import sweep


def join(base: Path, rank: int, clock: Callable[[], float] = time.monotonic) -> Meeting:
    return Meeting.join(base, RankPlace(rank, 2, rank, 2, "0123abcd"), "train.py", "1.0", 50, clock=clock)


def greet(*meetings: Meeting) -> None:
    """The first one sees the others, who see that it has, and take its start."""
    for each in meetings:
        each.ranks_here()


def both(base: Path) -> tuple[Meeting, Meeting]:
    first, second = join(base, 0), join(base, 1)
    greet(first, second)
    return first, second


def test_ranks_see_each_other_how_far_they_are_and_their_last_words(tmp_path: Path) -> None:
    first, second = both(tmp_path)
    assert sorted(first.ranks_here()) == sorted(second.ranks_here()) == [0, 1]
    assert (first.steps_of(1), first.last_word(1), first.is_reported(0)) == (0, None, False)
    second.tell_now(12)
    second.tell_done({"ended": "enough"})
    first.tell_reported()
    assert (first.steps_of(1), first.last_word(1), second.is_reported(0)) == (
        12,
        {"ended": "enough", "number": 0, "start": first.here.token},
        True,
    )
    assert first.path.stat().st_mode & 0o777 == 0o700


def test_of_several_runs_orders_and_last_words_are_those_of_the_one_under_way(tmp_path: Path) -> None:
    first, second = both(tmp_path)
    first.tell_order({"port": 1})
    second.tell_done({"ended": "enough"})
    first.number = 1
    assert first.last_word(1) is None
    assert second.order(0) == {"port": 1, "number": 0, "start": first.here.token}
    second.number = 1
    assert second.order(0) is None
    first.tell_order({"port": 2})
    assert second.order(0) == {"port": 2, "number": 1, "start": first.here.token}


def test_what_an_earlier_start_has_left_is_not_read(tmp_path: Path) -> None:
    earlier = both(tmp_path)
    for each in earlier:
        each.tell_order({"port": 1})
        each.tell_done({"ended": "failed"})
        each.tell_reported()
        each.close()
    second = join(tmp_path, 1)  # before the first one, whose words are still there
    assert sorted(second.ranks_here()) == [1]
    assert (second.order(0), second.is_reported(0), second.last_word(0)) == (None, False, None)
    first = join(tmp_path, 0)
    assert sorted(first.ranks_here()) == [0]  # the other one has not seen it yet
    greet(second)
    assert sorted(first.ranks_here()) == sorted(second.ranks_here()) == [0, 1]
    assert (first.last_word(0), first.last_word(1), first.is_reported(0)) == (None, None, False)


def test_a_rank_that_another_node_left_under_the_same_key_is_none_of_a_new_start(tmp_path: Path) -> None:
    _, second = both(tmp_path)
    second.tell_done({"ended": "failed"})
    first = join(tmp_path, 0)
    for _ in range(3):  # it greets the one that has gone, who does not answer
        assert sorted(first.ranks_here()) == [0]
    assert first.last_word(1) is None


def test_a_last_word_that_comes_before_the_first_rank_is_told_to_it(tmp_path: Path) -> None:
    second = join(tmp_path, 1)
    second.tell_done({"ended": "failed"})
    first = join(tmp_path, 0)
    greet(first, second)
    word = first.last_word(1)
    assert word is not None and word["ended"] == "failed"


def test_a_process_of_this_node_that_is_gone_is_dead(tmp_path: Path) -> None:
    meeting = join(tmp_path, 0)
    here = meeting.ranks_here()[0]
    assert not meeting.is_dead(here)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert meeting.is_dead(replace(here, pid=gone.pid))


def test_a_folder_that_another_rank_sweeps_away_at_that_moment_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "perfaudit_scratch_0123abcd"
    left.mkdir(mode=0o700)
    sweeper = os.open(left, os.O_RDONLY)
    fcntl.flock(sweeper, fcntl.LOCK_EX)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        left.rmdir()
        os.close(sweeper)

    monkeypatch.setattr("time.sleep", sleep)
    meeting = join(tmp_path, 0)
    assert len(pauses) == 1
    assert [each.name for each in left.iterdir()] == ["0.joined"]
    left.rename(tmp_path / "elsewhere")
    left.mkdir()
    assert not meeting._folder.is_at_its_path()


def test_a_folder_that_stays_held_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / "perfaudit_scratch_0123abcd"
    left.mkdir(mode=0o700)
    sweeper = os.open(left, os.O_RDONLY)
    fcntl.flock(sweeper, fcntl.LOCK_EX)
    monkeypatch.setattr(module, "OPEN_SECONDS", 0.0)
    with pytest.raises(TimeoutError, match="is held by another process"):
        join(tmp_path, 0)
    os.close(sweeper)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_rank_of_another_node_is_dead_where_it_gives_no_sign_of_life(tmp_path: Path) -> None:
    clock = Clock()
    first, second = join(tmp_path, 0, clock), join(tmp_path, 1)
    greet(first, second)
    far = replace(second.here, host="elsewhere", pid=0)

    def is_dead_after(seconds: float) -> bool:
        end = clock.now + seconds
        while clock.now < end:
            clock.now += 1.0
            if first.is_dead(far):
                return True
        return False

    assert not is_dead_after(SILENT_SECONDS)
    second._write_now(3)
    assert not is_dead_after(SILENT_SECONDS)
    second._write_now(3)  # no further step, but a sign of life
    assert not is_dead_after(SILENT_SECONDS)
    assert is_dead_after(3.0)


def test_time_in_which_nobody_looked_does_not_count_as_silence(tmp_path: Path) -> None:
    """The whole cluster, or its file system, may have stood still."""
    clock = Clock()
    first, second = join(tmp_path, 0, clock), join(tmp_path, 1)
    greet(first, second)
    far = replace(second.here, host="elsewhere")
    assert not first.is_dead(far)
    clock.now += 10 * SILENT_SECONDS
    assert not first.is_dead(far)
    assert first._signs[1].silence == LONGEST_LOOK


def test_a_rank_gives_signs_of_life_and_greets_whatever_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TELL_SECONDS", 0.01)
    first, second = join(tmp_path, 0), join(tmp_path, 1)
    others = threading.active_count()
    for each in (first, second):
        each.keep_telling()
    signs: set[str] = set()
    end = time.monotonic() + 60
    while len(signs) < 3 and time.monotonic() < end:
        now = first.path / "1.now"
        signs |= {now.read_text()} if now.exists() else set()
    assert len(signs) == 3
    assert second.here.start == first.here.token
    with first.quiet(), second.quiet():  # a process with threads does not fork
        assert threading.active_count() == others
    assert threading.active_count() == others + 2
    for each in (first, second):
        each.close()
    assert threading.active_count() == others


def test_a_rank_that_says_that_it_is_quiet_is_waited_for_longer(tmp_path: Path) -> None:
    clock = Clock()
    first, second = join(tmp_path, 0, clock=clock), join(tmp_path, 1)
    greet(first, second)
    far = replace(second.here, host="another")
    second._write_now(3, is_quiet=True)
    for _ in range(round(2 * SILENT_SECONDS / LONGEST_LOOK)):
        assert not first.is_dead(far)
        clock.now += LONGEST_LOOK
    second._write_now(3)
    for _ in range(round(2 * SILENT_SECONDS / LONGEST_LOOK)):
        first.is_dead(far)
        clock.now += LONGEST_LOOK
    assert first.is_dead(far)


def test_two_nodes_of_one_name_are_told_by_their_kernels(tmp_path: Path) -> None:
    first, second = join(tmp_path, 0), join(tmp_path, 1)
    assert first.is_on_this_node(second.here)
    elsewhere = replace(second.here, kernel="another boot", since=1)
    assert not first.is_on_this_node(elsewhere) and not first.is_dead(elsewhere)
    assert first.is_dead(replace(elsewhere, kernel=second.here.kernel))


def test_a_rank_of_another_version_is_here_whatever_it_says_of_itself(tmp_path: Path) -> None:
    first, _second = both(tmp_path)
    told = json.loads((first.path / "1.joined").read_text())
    older = {name: value for name, value in told.items() if name not in ("token", "start")}
    (first.path / "1.joined").write_text(json.dumps({**older, "version": "0.0.1", "run": "gone since"}))
    assert first.ranks_here()[1].version == "0.0.1"
    for left in ({"host": "another"}, {"since": 1}):  # by an earlier start
        (first.path / "1.joined").write_text(json.dumps({**older, "version": "0.0.1", **left}))
        assert first.ranks_here().keys() == {0}


def test_what_passes_on_a_file_system_of_several_machines_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = join(tmp_path, 0), join(tmp_path, 1)
    greet(first, second)
    read, failures = first._folder.read, [errno.ESTALE, errno.EIO]

    def fail_first(name: str) -> bytes:
        if failures:
            raise OSError(failures.pop(), "stale")
        return read(name)

    monkeypatch.setattr(first._folder, "read", fail_first)
    assert first.ranks_here().keys() == {0, 1} and not failures
    failures += [errno.ENOTDIR]
    with pytest.raises(NotADirectoryError):
        first.ranks_here()


def test_damaged_files_are_no_words(tmp_path: Path) -> None:
    meeting = join(tmp_path, 0)
    for name, text in (
        ("1.joined", "{"),
        ("1.done", "[]"),
        ("1.now", '{"steps": "many"}'),
        ("2.joined", '{"rank": 2}'),
    ):
        (meeting.path / name).write_text(text)
    assert sorted(meeting.ranks_here()) == [0]
    assert (meeting.last_word(1), meeting.steps_of(1)) == (None, 0)


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "perfaudit_scratch_0123abcd").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="a link"):
        join(tmp_path, 0)


def test_a_folder_that_somebody_meets_in_is_not_swept_away(tmp_path: Path) -> None:
    meeting = join(tmp_path, 0)
    os.utime(meeting.path, (0, 0))
    sweep(tmp_path)
    assert meeting.path.exists()
    meeting.close()
    sweep(tmp_path)
    assert not meeting.path.exists()
