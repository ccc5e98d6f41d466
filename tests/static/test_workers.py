"""Children that take too long, too much memory, or die: which file did it, why, and that the others are done all the same."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from perfaudit import forked_work as workers
from perfaudit.errors import UserError
from perfaudit.forked_work import Lost, in_children
from perfaudit.static.scan import Options, scan

Run = Callable[..., Any]


def spin(_: int) -> None:
    """In C code, which never returns to the interpreter."""
    re.match("(a*)*b", "a" * 100)


def wait(_: int) -> None:
    signal.pause()


def fill(_: int) -> None:
    bytearray(workers.MEMORY_BYTES * 2)


def crash(_: int) -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # as SIGSEGV would, which pytest prints


def starve(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CPU_SECONDS", 0.05)
    monkeypatch.setattr(workers, "WALL_SECONDS", 60)
    monkeypatch.setattr(workers, "MEMORY_BYTES", 1 << 30)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("does", "reason"),
    [
        (spin, "took longer than 0.05 s"),
        (fill, "needs more than 1 GiB of memory"),
        (crash, "the process that audited it died; a file that does that deserves a bug report"),
        (starve, "the process that audited it was killed, as the system does where memory is short"),
    ],
)
def test_what_ends_a_child_is_named(does: Callable[[int], None], reason: str, processes: int) -> None:
    def work(item: int) -> int:
        if item == 1:
            does(item)
        return item * 10

    assert dict(in_children(work, [0, 1, 2], processes)) == {0: 0, 1: Lost(reason), 2: 20}


def test_a_wait_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WALL_SECONDS", 0.05)
    assert list(in_children(wait, [0])) == [(0, Lost("took longer than 0.05 s, most of them waiting"))]


def test_after_some_that_end_their_child_the_rest_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a folder of a thousand such files would take a day."""
    monkeypatch.setattr(workers, "MAX_LOST", 2)
    results = [result.reason.partition(":")[0] for _, result in in_children(crash, range(5)) if result is not None]
    assert (
        results
        == ["the process that audited it died; a file that does that deserves a bug report"] * 2 + ["not looked at"] * 3
    )


def test_what_work_raises_is_raised_here() -> None:
    def work(item: int) -> int:
        raise UserError(f"no {item}")

    with pytest.raises(UserError, match="no 7"):
        list(in_children(work, [7]))


def test_results_of_any_size_come_back() -> None:
    assert [len(result) for _, result in in_children(lambda n: b"a" * n, [0, 10_000_000, 1])] == [0, 10_000_000, 1]  # type: ignore[arg-type]


def test_no_child_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where nobody asks for the rest."""
    started: list[int] = []
    real = os.fork
    monkeypatch.setattr(os, "fork", lambda: started.append(pid := real()) or pid)
    results = in_children(lambda n: n, range(100), 2)
    next(results)
    results.close()  # type: ignore[attr-defined]  # a generator
    assert len(started) == 2
    for pid in started:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_the_collector_of_the_caller_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan in the process of the caller neither freezes nor thaws their heap, nor counts what they have frozen."""
    told: list[tuple[int, ...]] = []
    usual = gc.get_threshold()
    heap = SimpleNamespace(get_threshold=gc.get_threshold, set_threshold=lambda *given: told.append(given))
    monkeypatch.setattr(workers, "gc", heap)
    monkeypatch.setattr(workers, "can_fork", lambda: False)
    assert dict(in_children(abs, [-1, -2], 1)) == {-1: 1, -2: 2}
    assert told == [(workers.COLLECT_AT, *usual[1:]), usual]


def test_where_threads_run_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their locks would stay closed in the child for ever."""
    monkeypatch.delattr(os, "fork")
    assert list(in_children(lambda n: n, [1, 2])) == [(1, 1), (2, 2)]
    monkeypatch.undo()
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        assert not workers.can_fork()
    finally:
        over.set()
        other.join()
    assert workers.can_fork()


def test_a_scan_names_the_file_that_takes_too_long(
    project: Any, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfaudit.static import scan as scanning

    folder = project(**{"a.py": "import torch\n", "slow.py": "import torch\n"})
    real = scanning.audit_file
    monkeypatch.setattr(workers, "CPU_SECONDS", 0.5)

    def slow(path: Any, *rest: Any) -> Any:
        return spin(0) if path.name == "slow.py" else real(path, *rest)

    monkeypatch.setattr(scanning, "audit_file", slow)
    report = scan([str(folder)], Options())
    assert [(item.path, item.reason) for item in report.skipped] == [("slow.py", "took longer than 0.5 s")]
    assert report.files == 1


def test_standard_input_has_the_same_limits(project: Any, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfaudit.static.scan import scan_bytes

    monkeypatch.setattr("perfaudit.static.scan.audit", lambda *_: spin(0))
    report, document = scan_bytes(b"import torch\n", "a.py")
    assert ([item.reason for item in report.skipped], document) == (["took longer than 0.05 s"], None)
