"""A rank among others: whom it waits for, when it gives up, and what the first one makes of all their words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from perfaudit.cli.ranks_report import with_ranks
from perfaudit.cli.run import exit_code_of
from perfaudit.cli.run_ranks import (
    ALONE_SECONDS,
    GREET_SECONDS,
    JOIN_SECONDS,
    LEAVE_SECONDS,
    LOOK_SECONDS,
    LauncherGone,
    Ranks,
    _content_of,
    together,
)
from perfaudit.distributed.launch import Launcher, RankPlace
from perfaudit.distributed.meeting import SILENT_SECONDS, Meeting
from perfaudit.errors import UserError
from perfaudit.processes import started_at
from perfaudit.render.run_ranks import communication
from perfaudit.runs import RankUpdate, RankUpdates, Run
from perfaudit.script.observe import Seen, Stopped
from perfaudit.script.request import Script

RUN = Run("train.py", "enough", steps=50, counted=47, seconds_per_step=0.04, updates_per_step=1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def place(rank: int) -> RankPlace:
    return RankPlace(rank, 2, rank, 2, "0123abcd", "RANK")


def join(
    base: Path, rank: int, clock: Clock, script: str = "train.py", version: str = "1.0", steps: int = 50, **more: str
) -> Ranks:
    meeting = Meeting.join(base, place(rank), script, version, steps, **more)
    return Ranks(place(rank), meeting, 0, 2, clock, clock.sleep)


def both(base: Path, clock: Clock, **of_second: Any) -> tuple[Ranks, Ranks]:
    """Two ranks that have seen each other."""
    first, second = join(base, 0, clock), join(base, 1, clock, **of_second)
    for each in (first, second, first):
        each._ranks_here()
    return first, second


def seen(updates: int) -> Seen:
    found = Seen(0.0)
    found.number = updates
    found.of_rank = [RankUpdate(0.04, 0.004, 0.004, 0.0, 0.036, 8, 0, 0.0)] * updates
    return found


def heed_until(ranks: Ranks, clock: Clock, seconds: float, updates: int = 5) -> None:
    """Look at the others for so long, without another step."""
    end = clock.now + seconds
    while clock.now < end:
        ranks.heed(seen(updates))
        clock.now += LOOK_SECONDS


def test_a_rank_goes_on_while_the_others_are_there(tmp_path: Path) -> None:
    clock = Clock()
    first, _ = both(tmp_path, clock)
    heed_until(first, clock, 2 * JOIN_SECONDS)


def test_a_rank_gives_up_where_another_has_ended_and_no_further_step_comes(tmp_path: Path) -> None:
    clock = Clock()
    first, second = both(tmp_path, clock)
    second.tell_done(replace(RUN, steps=12), seen(12))
    heed_until(first, clock, ALONE_SECONDS - 1)
    heed_until(first, clock, ALONE_SECONDS - 1, updates=6)  # a step came: the other one is not needed for it
    with pytest.raises(Stopped, match="rank 1 has ended after 12 steps"):
        heed_until(first, clock, 2 * ALONE_SECONDS, updates=6)


def test_a_rank_gives_up_where_another_never_joins(tmp_path: Path) -> None:
    clock = Clock()
    first = join(tmp_path, 0, clock)
    heed_until(first, clock, JOIN_SECONDS - 1)
    with pytest.raises(Stopped, match="rank 1 of 2 did not join"):
        heed_until(first, clock, 3)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"script": "other.py"}, "rank 0 runs `train.py`, rank 1 `other.py`: all ranks must run the same"),
        ({"version": "0.9"}, "rank 0 runs perfaudit 1.0, rank 1 0.9"),
        ({"steps": 20}, "rank 0 ends after 50 steps, rank 1 after 20"),
        ({"content": "ab"}, "`train.py` is another file on rank 1 than on rank 0: all ranks must run the same"),
        ({"torch": "2.4.0"}, "rank 0 has torch none, rank 1 2.4.0"),
        ({"python": "3.12.1"}, "rank 0 runs Python , rank 1 3.12.1"),
    ],
)
def test_ranks_that_run_something_else_are_told(tmp_path: Path, other: dict[str, Any], said: str) -> None:
    clock = Clock()
    for each in both(tmp_path, clock, **other):
        with pytest.raises(Stopped) as stopped:
            each.heed(seen(1))
        assert str(stopped.value) == each.differ == said


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_rank_whose_first_one_is_gone_knows_whether_it_has_reported(tmp_path: Path, is_reported: bool) -> None:
    clock = Clock()
    _, second = both(tmp_path, clock)
    second.heed(seen(1))
    word = tmp_path / "perfaudit_scratch_0123abcd" / "0.joined"
    if is_reported:  # it deletes one file after the other
        word.unlink()
    else:
        word.write_text(word.read_text().replace(f'"pid": {os.getpid()}', '"pid": 0'))
    assert second.wait_for_report() == is_reported


def test_the_first_rank_gathers_all_last_words_and_the_others_wait_for_its_report(tmp_path: Path) -> None:
    clock = Clock()
    first, second = both(tmp_path, clock)
    for each in (first, second):
        each.tell_done(RUN, seen(50))
    assert [told["rank"] for told in first.gather()] == [0, 1]
    first.tell_reported()
    assert second.wait_for_report()
    assert clock.now == 0.0


def test_a_rank_that_does_not_speak_or_never_came_is_told_as_such(tmp_path: Path) -> None:
    clock = Clock()
    first, _ = both(tmp_path, clock)
    first.tell_done(RUN, seen(50))
    late = first.gather()[1]
    assert (late["ended"], late["message"]) == ("late", f"told nothing for {LEAVE_SECONDS:.0f} s")
    assert clock.now >= LEAVE_SECONDS
    (tmp_path / "perfaudit_scratch_0123abcd" / "1.joined").unlink()
    assert first.gather()[1] == {"rank": 1, "ended": "missing", "message": f"has not joined in {clock.now:.0f} s"}


def test_a_rank_whose_first_one_is_lost_with_its_node_waits_for_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    _, second = both(tmp_path, clock)
    monkeypatch.setattr(second._meeting, "_clock", clock)
    word = tmp_path / "perfaudit_scratch_0123abcd" / "0.joined"
    word.write_text(word.read_text().replace('"host": "', '"host": "elsewhere-'))
    second.begin()
    assert second.wait_for_order() is None
    assert SILENT_SECONDS < clock.now < 2 * SILENT_SECONDS


def test_a_script_is_known_by_what_its_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    for name in ("train.py", "package/train.py", "package/__main__.py"):
        (tmp_path / name).write_text(name)
    scripts = [Script("train.py"), Script("package.train", (), True), Script("package", (), True), Script("gone.py")]
    before = [_content_of(each) for each in scripts]
    assert (len(set(before)), before[3]) == (4, "")
    (tmp_path / "package" / "train.py").write_text("other")
    assert [_content_of(each) == then for each, then in zip(scripts, before, strict=True)] == [True, False, True, True]


def test_ranks_whose_launcher_is_killed_end(tmp_path: Path) -> None:
    """At the next look while the script runs, and wherever else they wait for each other."""
    clock = Clock()
    first, second = both(tmp_path, clock)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as torchrun:
        since = started_at(torchrun.pid)
        assert since is not None
        for each in (first, second):
            each._launcher = Launcher(torchrun.pid, since, "torchrun")
        heed_until(first, clock, 2 * LOOK_SECONDS)
        torchrun.kill()
    said = rf"torchrun \(process {torchrun.pid}\), which has started rank 1, is gone"
    with pytest.raises(Stopped, match=said):
        heed_until(second, clock, 2 * LOOK_SECONDS)
    for wait in (
        second.wait_for_order,
        second.wait_for_report,
        second.first_gone,
        first.gather,
        lambda: first.replies(60),
    ):
        with pytest.raises(LauncherGone, match="is gone"):
            wait()
    shutil.rmtree(tmp_path / "perfaudit_scratch_0123abcd")  # by the first rank, as it leaves
    with pytest.raises(Stopped, match=said):
        heed_until(second, clock, 2 * LOOK_SECONDS)


def test_ranks_whose_numbers_are_not_in_a_row_are_told_what_they_need(tmp_path: Path) -> None:
    """Ranks 0 and 2 are on this node, 1 and 3 on another one, as with `srun --distribution=cyclic`."""
    clock = Clock()
    ranks = []
    for rank, local in ((0, 0), (2, 1)):
        here = RankPlace(rank, 4, local, 2, "0123abcd", "RANK")
        meeting = Meeting.join(tmp_path, here, "train.py", "1.0", 50, first=rank - local)
        ranks.append(Ranks(here, meeting, rank - local, 2, clock, clock.sleep))
    said = (
        "ranks 0, 2 of 4 are on one node, and their numbers are not in a row: name a folder that all nodes see with "
        "--meet FOLDER"
    )
    for each in ranks:
        each.heed(seen(1))
    clock.now = GREET_SECONDS  # until then, a rank may come late
    for each in ranks:
        with pytest.raises(Stopped) as stopped:
            each.heed(seen(1))
        assert str(stopped.value) == each.misnumbered_ranks == said
    assert ranks[0].leave_word_to_first()
    assert clock.now == GREET_SECONDS
    assert not ranks[1].leave_word_to_first()
    assert LEAVE_SECONDS <= clock.now - GREET_SECONDS < LEAVE_SECONDS + 1  # the first one is still here
    (tmp_path / "perfaudit_scratch_0123abcd" / "0.joined").unlink()
    assert not ranks[1].leave_word_to_first()
    assert clock.now - GREET_SECONDS < LEAVE_SECONDS + 1


def test_ranks_that_are_numbered_in_a_row_on_each_node_are_not_told_so(tmp_path: Path) -> None:
    """Nor where two nodes are played on one: all of them are there."""
    clock = Clock()
    for rank in range(4):
        here = RankPlace(rank, 4, rank % 2, 2, "0123abcd", "RANK")
        first = rank - rank % 2
        ranks = Ranks(
            here, Meeting.join(tmp_path, here, "train.py", "1.0", 50, first=first), first, 2, clock, clock.sleep
        )
    heed_until(ranks, clock, 2 * GREET_SECONDS)
    assert ranks.misnumbered_ranks == ""


def test_ranks_without_a_place_to_meet(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(UserError, match="ranks cannot meet"), together(place(0), Script("train.py"), 50, nowhere):
        pass


def test_the_first_rank_deletes_the_folder_behind_itself(tmp_path: Path) -> None:
    with together(place(1), Script("train.py"), 50, tmp_path):
        with together(place(0), Script("train.py"), 50, tmp_path) as first:
            assert (first.is_first, len(list(tmp_path.iterdir()))) == (True, 1)
        assert list(tmp_path.iterdir()) == []


def word(
    rank: int,
    own: float,
    step: float = 0.06,
    updates: int = 50,
    elements: int = 8,
    padding: int = 2,
    loading: float = 0.0,
) -> dict[str, Any]:
    each = RankUpdate(step, step - own, step - own, 0.0, 0.0, elements, padding, loading)
    model = {"communication": 0.010, "hidden": 0.006}
    return {
        "rank": rank, "ended": "enough", "message": "", "host": "here", "steps": updates, "seconds_per_step": step,
        "phases": {"forward": 0.2, "backward": 0.8}, "updates": asdict(RankUpdates.of(0, [each] * updates)),
        "collectives": {"backend": "gloo", "callers": [], "parallel_models": [model]},
    }  # fmt: skip


def test_a_straggler_in_the_words_of_all_ranks() -> None:
    run, findings = with_ranks(replace(RUN, ranks=2), [word(0, own=0.030), word(1, own=0.050)])
    assert [(late.rank, round(late.seconds, 3)) for late in run.stragglers] == [(1, 0.020)]
    assert [each.own_seconds_per_step for each in run.by_rank] == pytest.approx([0.030, 0.050])
    assert [each.padding for each in run.by_rank] == pytest.approx([0.2, 0.2])
    assert (run.communication_exposed, run.communication_overlap) == (pytest.approx(1 / 6), pytest.approx(0.6))
    assert [each.rule for each in findings] == ["PA904"]


def test_what_a_thread_waits_for_its_threads_and_workers_may_be_due_to_a_slow_core() -> None:
    words = [word(0, own=0.050), word(1, own=0.057)]
    assert [each.rule for each in with_ranks(RUN, words)[1]] == ["PA904"]
    words[1]["collectives"]["has_threads"] = True
    assert with_ranks(RUN, words)[1] == ()
    words = [word(0, own=0.050, loading=0.040), word(1, own=0.057, loading=0.047)]
    assert [each.rule for each in with_ranks(RUN, words)[1]] == ["PA904"]  # read from a disk
    for each in words:
        each["collectives"]["has_workers"] = True
    assert with_ranks(RUN, words)[1] == ()


def test_ranks_that_exchange_nothing_are_not_compared() -> None:
    words = [word(0, 0.06), word(1, 0.09, step=0.09)]
    for each in words:
        each["collectives"] = {}
    run, findings = with_ranks(RUN, words)
    assert findings == ()
    assert (run.stragglers, run.imbalance, [each.waited for each in run.by_rank]) == ((), None, [0.0, 0.0])
    assert communication(run, run.by_rank)[0].startswith("The ranks exchange nothing: each trains on its own")
    for each in words:  # the same, where a step waits: the group was taken down before the end
        each["updates"]["waited"] = [0.001] * 50
    assert with_ranks(RUN, words)[0].imbalance is not None


def test_of_collectives_on_a_device_nothing_is_said_of_waiting() -> None:
    words = [word(0, own=0.030), word(1, own=0.050)]
    for each in words:
        each["collectives"]["backend"] = "nccl"
    run, findings = with_ranks(RUN, words)
    assert [each.waited for each in run.by_rank] == [None, None]
    assert (run.communication_exposed, run.stragglers, findings) == (None, (), ())


def test_a_rank_without_steps_keeps_the_others_from_being_compared() -> None:
    run, findings = with_ranks(
        RUN, [word(0, own=0.030), {"rank": 1, "ended": "missing", "message": "has not joined in 120 s"}]
    )
    assert [each.ended for each in run.by_rank] == ["enough", "missing"]
    assert (run.stragglers, findings) == ((), ())


@pytest.mark.parametrize(
    ("ended", "of", "code"),
    [("enough", 2, 0), ("late", 2, 3), ("late", 1, 0), ("stopped", 2, 3), ("interrupted", 2, 130)],
)
def test_a_job_that_hangs_is_no_success(ended: str, of: int, code: int) -> None:
    """One script alone that made steps and then none was measured all the same."""
    assert exit_code_of(replace(RUN, ended=ended, ranks=of)) == code
    assert exit_code_of(replace(RUN, ended="failed", ranks=of, exit_code=7)) == 7
