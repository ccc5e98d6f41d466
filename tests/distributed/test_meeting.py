"""Ranks that meet in a folder: in one process here, each with a meeting of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.distributed.launch import Place
from perfaudit.distributed.meeting import Meeting
from perfaudit.files import Refused
from perfaudit.script.scratch_folders import sweep


def join(base: Path, rank: int, run: str = "7-1", script: str = "train.py") -> Meeting:
    return Meeting.join(base, Place(rank, 2, rank, 2, "0123abcd"), script, "1.0", 50, run)


def test_ranks_see_each_other_how_far_they_are_and_their_last_words(tmp_path: Path) -> None:
    first, second = join(tmp_path, 0), join(tmp_path, 1)
    assert sorted(first.ranks_here()) == [0, 1]
    assert (first.steps_of(1), first.last_word(1), first.is_reported(0)) == (0, None, False)
    second.tell_now(12)
    second.tell_done({"ended": "enough"})
    first.tell_reported()
    assert (first.steps_of(1), first.last_word(1), second.is_reported(0)) == (
        12,
        {"ended": "enough", "number": 0},
        True,
    )
    assert first.path.stat().st_mode & 0o777 == 0o700


def test_of_several_runs_orders_and_last_words_are_those_of_the_one_under_way(tmp_path: Path) -> None:
    first, second = join(tmp_path, 0), join(tmp_path, 1)
    first.tell_order({"port": 1})
    second.tell_done({"ended": "enough"})
    first.number = 1
    assert first.last_word(1) is None
    assert second.order(0) == {"port": 1, "number": 0}
    second.number = 1
    assert second.order(0) is None
    first.tell_order({"port": 2})
    assert second.order(0) == {"port": 2, "number": 1}


def test_what_an_earlier_start_has_left_is_not_read(tmp_path: Path) -> None:
    earlier = [join(tmp_path, rank, run="6-1") for rank in (0, 1)]
    for each in earlier:
        each.tell_done({"ended": "failed"})
        each.tell_reported()
        each.close()
    first = join(tmp_path, 0)
    assert sorted(first.ranks_here()) == [0]  # the other one has not come yet
    join(tmp_path, 1)
    assert sorted(first.ranks_here()) == [0, 1]
    assert (first.last_word(0), first.last_word(1), first.is_reported(0)) == (None, None, False)


def test_a_process_that_is_gone_is_dead_and_one_of_another_node_is_not_known_to_be(tmp_path: Path) -> None:
    meeting = join(tmp_path, 0)
    here = meeting.ranks_here()[0]
    assert not meeting.is_dead(here)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert meeting.is_dead(replace(here, pid=gone.pid))
    assert not meeting.is_dead(replace(here, pid=gone.pid, host="elsewhere"))


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
