"""Loader workers of two trainings in one process: only those of the one that has the turn run, and no batch is lost."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from perfaudit.training.workers import Workers

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
DEADLINE = 30.0  # seconds that a test waits for another process before it fails


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, at: int) -> int:
        return at


@pytest.fixture
def batches() -> Iterator[Callable[[], Any]]:
    """Begin an epoch of a loader with one worker: `batches()` is its iterator. Afterwards no worker is left."""
    before = set(multiprocessing.active_children())
    begun: list[Any] = []

    def start() -> Any:
        loader = torch.utils.data.DataLoader(
            Numbers(), 2, num_workers=1, prefetch_factor=2, multiprocessing_context="fork"
        )
        begun.append(iter(loader))
        return begun[-1]

    yield start
    begun.clear()
    for child in set(multiprocessing.active_children()) - before:
        child.kill()
        child.join()


def waits_until(is_so: Callable[[], bool]) -> bool:
    ends = time.monotonic() + DEADLINE
    while not is_so():
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


def fields(child: BaseProcess) -> list[str]:
    """What the system tells of a process, from its state on: see proc(5), `stat`."""
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()


def is_stopped(child: BaseProcess) -> bool:
    return fields(child)[0] == "T"


def cpu_ticks(child: BaseProcess) -> int:
    return int(fields(child)[11]) + int(fields(child)[12])


def workers_of(take: Callable[[], Any]) -> tuple[Any, BaseProcess]:
    """What `take` gives, and the worker that it has started."""
    before = set(multiprocessing.active_children())
    taken = take()
    (child,) = set(multiprocessing.active_children()) - before
    return taken, child


@needs_proc
def test_workers_stand_still_while_another_training_has_the_turn(batches: Callable[[], Any]) -> None:
    workers = Workers("")
    first, of_first = workers_of(batches)
    assert next(first).tolist() == [0, 1]
    workers.give_turn_to("twin")
    assert waits_until(lambda: is_stopped(of_first))
    second, of_second = workers_of(batches)
    took = cpu_ticks(of_first)
    assert [next(second).tolist()[0] for _ in range(50)] == list(range(0, 100, 2))
    assert is_stopped(of_first)
    assert cpu_ticks(of_first) == took
    workers.give_turn_to("")
    assert waits_until(lambda: is_stopped(of_second) and not is_stopped(of_first))
    assert [next(first).tolist()[0] for _ in range(50)] == list(range(2, 102, 2))  # where it was, none lost
    workers.give_turn_to("twin")
    assert [next(second).tolist()[0] for _ in range(10)] == list(range(100, 120, 2))
    workers.close()


@needs_proc
def test_workers_that_were_let_go_end_when_they_are_asked_to(batches: Callable[[], Any]) -> None:
    workers = Workers("")
    first, of_first = workers_of(batches)
    next(first)
    workers.give_turn_to("twin")
    second, of_second = workers_of(batches)
    next(second)
    workers.give_turn_to("other")
    assert waits_until(lambda: is_stopped(of_first) and is_stopped(of_second))
    workers.close()
    assert waits_until(lambda: not is_stopped(of_first) and not is_stopped(of_second))
    for iterator in (first, second):
        iterator._shutdown_workers()
    assert [child.exitcode for child in (of_first, of_second)] == [0, 0]  # by themselves, not by a signal


@needs_proc
def test_the_turn_of_the_one_that_has_it_changes_nothing(batches: Callable[[], Any]) -> None:
    workers = Workers("")
    first, of_first = workers_of(batches)
    next(first)
    workers.give_turn_to("")
    assert not is_stopped(of_first)
    assert next(first).tolist() == [2, 3]


@needs_proc
def test_a_worker_that_has_ended_meanwhile_is_forgotten(batches: Callable[[], Any]) -> None:
    workers = Workers("")
    first, of_first = workers_of(batches)
    workers.give_turn_to("twin")
    second, of_second = workers_of(batches)
    workers.give_turn_to("")
    assert next(first).tolist() == [0, 1]
    first._shutdown_workers()
    workers.give_turn_to("twin")
    assert next(second).tolist() == [0, 1]
    third, of_third = workers_of(batches)  # in the turn of the twin
    workers.give_turn_to("")
    assert waits_until(lambda: is_stopped(of_second) and is_stopped(of_third))
    assert of_first.exitcode == 0
    workers.close()
    assert next(third).tolist() == [0, 1]
