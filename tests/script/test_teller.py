"""What is told of a training before its end, for a script that is killed."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfaudit.script.observe import Seen, _take
from perfaudit.script.pipe import Pipe
from perfaudit.script.start import _hint
from perfaudit.script.started_processes import watch_replaced
from perfaudit.script.teller import FACTS_AFTER, Teller
from perfaudit.script.watch import Watch

ORDER = {
    "steps": 0,
    "seconds": 0.0,
    "is_live": False,
    "profile": False,
    "trace": -1,
    "values": False,
    "is_whole": False,
    "reads_samples": False,
    "is_rank": False,
}


@pytest.fixture(autouse=True)
def profile_function_is_put_back() -> Iterator[None]:
    """A teller that began to listen, and made no further step, would listen to the tests behind this one."""
    here = sys.getprofile()
    yield
    sys.setprofile(here)


class Told(Pipe):
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def tell(self, line: dict[str, Any]) -> None:
        self.lines.append(line)


def facts_after(updates: int, pid: int) -> list[dict[str, Any]]:
    told = Told()
    teller = Teller(ORDER, told, pid=pid)
    for number in range(updates):
        teller.watch.counts.updates = number + 1
        teller.count(0)
    return [line["facts"] for line in told.lines if "facts" in line]


def test_facts_are_told_before_the_end_and_again() -> None:
    assert facts_after(FACTS_AFTER - 1, os.getpid()) == []
    first, second = facts_after(2 * FACTS_AFTER, os.getpid())
    assert first["peak_memory_bytes"] <= second["peak_memory_bytes"]
    assert "files" in first
    brief, _ = facts_after(2 * FACTS_AFTER, os.getppid())  # as a process that the script has started
    assert "files" not in brief
    assert brief["is_started"]


def test_batches_and_backward_passes_of_a_script_without_an_update_are_all_told_at_its_end() -> None:
    told = Told()
    teller = Teller(ORDER, told, pid=os.getpid())
    counts = teller.watch.counts
    for _ in range(20):
        counts.add_batch()
        counts.note_early_batch()
    teller.end("finished")
    assert [line["batches"] for line in told.lines if "batches" in line][-1] == 20


@pytest.mark.parametrize(
    ("order_of_updates", "seen"),
    [
        ([number // 100 for number in range(400)], 165),  # folds, each with a new optimizer
        ([number % 2 for number in range(400)], 300),  # a GAN
        ([0] * 400, 150),
        ([2 + number // 4 if number % 4 else 1 for number in range(800)], 597),  # tasks, each with a new one
        ([number // 2 for number in range(400)], 150),  # a new one for each call of a function
    ],
)
def test_steps_that_were_asked_for_are_counted(
    order_of_updates: list[int], seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of the folds is known as one after a row that is too long for a round."""
    teller = Teller(ORDER | {"steps": 150}, Told())

    class Ended(Exception):
        pass

    def end() -> None:
        raise Ended

    monkeypatch.setattr(teller, "_end_script", end)
    monkeypatch.setattr(teller, "_begins_to_listen", lambda now: False)  # which makes steps more
    updates = iter(order_of_updates)
    with pytest.raises(Ended):
        for optimizer in updates:
            teller.count(optimizer)
    assert len(order_of_updates) - len(list(updates)) == seen


@pytest.mark.parametrize(
    ("seconds", "first", "seen"),
    [
        (0.1, 19.0, 21),  # the first step has an evaluation: the others come soon
        (3.0, 19.0, 4),  # they do not
        (40.0, 40.0, 3),  # four are not waited for where they take minutes
        (200.0, 200.0, 2),
        (0.1, 0.0, 201),
    ],
)
def test_a_few_more_steps_are_waited_for_where_they_come_soon(
    seconds: float, first: float, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, ends = 1000.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    teller = Teller(ORDER | {"seconds": 20.0}, Told())
    monkeypatch.setattr(teller, "_end_script", lambda: ends.append(number))
    for number in range(300):
        now += first if number == 1 else seconds
        teller.count(0)
    assert abs(ends[0] + 1 - seen) <= 1  # sums of 0.1


@pytest.mark.parametrize(
    ("row", "seconds", "seen"),
    [
        (32, 0.35, 225),  # a PPO: the time is up in the critic's first row, and four rounds are wanted
        (60, 0.25, 129),  # too long for a round, which is known then
        (60, 1.0, 21),  # the other one has not come up
    ],
)
def test_a_first_round_is_waited_for_as_long_again(
    row: int, seconds: float, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, ends = 1000.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    teller = Teller(ORDER | {"seconds": 20.0}, Told())
    monkeypatch.setattr(teller, "_end_script", lambda: ends.append(number))
    for number in range(400):
        now += seconds
        teller.count(number // row % 2)
    assert abs(ends[0] + 1 - seen) <= 1


def test_a_first_round_is_waited_for_no_longer_than_twice_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, ends = 1000.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    teller = Teller(ORDER | {"seconds": 20.0}, Told())
    monkeypatch.setattr(teller, "_end_script", lambda: ends.append(number))
    for number in range(100):
        now += 0.7
        teller.count(int(number >= 10))
    assert abs(0.7 * ends[0] - 40.0) <= 0.7


@pytest.mark.parametrize(
    ("step", "is_model_called", "ends"),
    [
        (0.125, True, 26.0),  # an evaluation: not waited for when a quarter more than the time is over
        (0.125, False, 0.0),  # nothing is seen of what it does
        (30.0, True, 0.0),  # a step takes longer, and a teacher of it is called without gradients
    ],
)
def test_an_evaluation_is_told_and_not_waited_for_when_the_time_is_up(
    step: float, is_model_called: bool, ends: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, told, ended = 1000.0, Told(), list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    teller = Teller(ORDER | {"seconds": 20.0}, told)
    monkeypatch.setattr(teller, "_end_script", lambda: ended.append(now - began))
    teller.watch.counts.first_batch_at = now
    began = now = now + step
    teller.watch.counts.updates = 1
    teller.count(0)
    for _ in range(60):
        now += 0.5
        if is_model_called:
            teller.watch.counts.add_evaluated()
    assert ended[:1] == ([ends] if ends else [])
    assert ({"waited_for": "evaluation"} in told.lines) == bool(ends)
    assert any("evaluated" in line for line in told.lines) == bool(ends)


def test_a_step_is_no_evaluation_once_it_has_a_backward_pass() -> None:
    watch = Watch(lambda optimizer: None)
    watch.counts.add_evaluated()
    assert watch.counts.evaluated == 1
    watch._watch_backward(lambda: None)()
    assert watch.counts.evaluated == 0


def test_what_is_told_begins_no_row_of_watched_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 1 ms: something is told four times a second, and rows begin where they were drawn."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(Watch, "events_per_update", 10.0)
    teller, begun = Teller(ORDER, Told()), list[int]()

    def next_row() -> tuple[bool, int]:
        begun.append(teller.watch.counts.updates)
        return False, 1000

    monkeypatch.setattr(teller._chosen, "next_row", next_row)
    for number in range(2500):
        now += 0.001
        teller.watch.counts.updates = number + 1
        teller.count(0)
    assert len(begun) > 1
    assert {later - before for before, later in itertools.pairwise(begun)} == {1000}


def test_a_program_that_takes_the_place_of_the_script_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def refuse(path: str, argv: list[str]) -> None:
        raise FileNotFoundError(path)

    for name in ("execv", "execve"):
        monkeypatch.setattr(os, name, refuse)
    watch_replaced(told.append)
    with pytest.raises(FileNotFoundError):
        os.execl("/usr/bin/python", "python", "-u", "train.py", "--again")
    assert told == ["python train.py", ""]
    seen = Seen(0.0)
    _take(seen, {"replaced": told[0]})
    _take(seen, {"left": 0})
    assert seen.message == (
        "another program took its place (python train.py), in which nothing was seen; its process ended with code 0"
    )


@pytest.mark.parametrize(("seconds", "looks"), [(0.5, range(1, 13)), (0.02, [1, 2, 5, 6, 10, 11])])
def test_who_waits_is_looked_at_between_two_updates_in_a_row(
    seconds: float, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between each two of long ones; of short ones less and less often."""
    teller, looked = Teller(ORDER, Told()), {}
    monkeypatch.setattr(
        teller._waiting, "end_update", lambda is_next: looked.update({teller.watch.counts.updates: is_next})
    )
    monkeypatch.setattr(time, "monotonic", lambda: 1000 + seconds * teller.watch.counts.updates)
    for number in range(1, 13):
        teller.watch.counts.updates = number
        teller.count(0)
    assert list(looked) == list(looks)
    assert [number for number, is_next in looked.items() if is_next] == [
        each for each in looks if each - 1 in (0, *looks)
    ]


def test_the_last_facts_of_the_training_count() -> None:
    def facts_of(*lines: dict[str, Any]) -> dict[str, Any]:
        seen = Seen(0.0)
        for line in lines:
            _take(seen, line)
        return seen.facts

    early, late = {"facts": {"device": "cpu", "at": 1}}, {"ended": "finished", "message": "", "code": 0}
    assert facts_of(early, {"left": 5})["at"] == 1
    assert facts_of(early, late | {"facts": {"at": 2, "files": []}}) == {"device": "cpu", "at": 2, "files": []}
    assert facts_of(early, late | {"facts": {}})["at"] == 1
    started = {"facts": {"at": 3, "is_started": True}}
    assert facts_of(started, late | {"facts": {"at": 2, "files": [], "is_started": False}}) == {
        "at": 3, "files": [], "is_started": True,
    }  # fmt: skip


def test_hints_of_errors_that_come_of_how_a_script_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relative = ImportError("attempted relative import with no known parent package")
    order = {"name": "pkg/train.py", "is_module": False}
    assert _hint(relative, order) == ". It imports from its package: try `perfaudit run -m pkg.train`"
    assert _hint(relative, order | {"name": "train.py"}) == ""
    assert _hint(RuntimeError("Found no NVIDIA driver on your system."), order).startswith(": it needs a GPU")
    assert _hint(EOFError("EOF when reading a line"), order) == ": standard input is closed, or at its end"
    assert _hint(ValueError("no data"), order) == ""
    absent, part = ModuleNotFoundError("…", name="einops"), ModuleNotFoundError("…", name="einops.layers")
    assert _hint(absent, order) == f". It runs with {sys.executable}, which has no `einops`"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "einops").mkdir()
    assert _hint(absent, order).startswith(". It runs with")  # what a tool has left there
    (tmp_path / "einops" / "__init__.py").touch()
    assert _hint(absent, order).startswith(". `einops` lies in the folder of the command: put PYTHONPATH=. before")
    assert _hint(part, order) == ""  # of a package that is there, in another version
