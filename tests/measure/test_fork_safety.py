"""A process that holds an accelerator is not forked from; children are then fresh interpreters, and the run says so."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from perfaudit.measure import child, fork_safety, forking, nursery
from perfaudit.measure.fork_safety import LOOKS_AGAIN, lasting_reason_not_to_fork, reason_not_to_fork, why_not_to_fork
from perfaudit.measure.nursery import CannotFork

LIBRARIES = "7f00-7f01 r-xp 00000000 08:01 99 /usr/lib/x86_64-linux-gnu/libcuda.so.550.54\n"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may themselves run in one of several threads."""
    monkeypatch.setattr(fork_safety.threading, "active_count", lambda: 1)


@pytest.mark.parametrize(
    ("in_use", "files", "libraries", "threads", "said"),
    [
        ("", ["socket:[7]", "/dev/null"], "", 0, ""),
        ("", ["/dev/null"], LIBRARIES, 0, ""),  # a torch with CUDA maps it on import and opens nothing
        ("", ["/dev/nvidiactl"], "", 0, ""),  # NVML, which torch asks so that forks stay possible
        ("", ["/dev/nvidiactl", "/dev/nvidia0"], LIBRARIES, 0, "/dev/nvidiactl is open in it"),
        ("", ["/dev/kfd"], "", 0, "/dev/kfd is open in it"),
        ("", ["/dev/dri/renderD128"], "", 0, "/dev/dri/renderD128 is open in it"),
        ("cuda", [], "", 0, "torch.cuda is initialised in it"),
        ("", [], "", 1, "1 other thread runs in it"),
        ("", [], "", 2, "2 other threads run in it"),
    ],
)
def test_why_not_to_fork(in_use: str, files: list[str], libraries: str, threads: int, said: str) -> None:
    found = why_not_to_fork(in_use, files, libraries, threads)
    assert found.startswith(said) and bool(found) == bool(said)


def test_the_state_of_a_process_is_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "fd").mkdir()
    (tmp_path / "fd" / "7").symlink_to("/dev/nvidia0")
    assert reason_not_to_fork(process=tmp_path) == ""
    (tmp_path / "maps").write_text(LIBRARIES)
    assert "/dev/nvidia0 is open" in reason_not_to_fork(process=tmp_path)
    assert "2 other threads" in reason_not_to_fork(3, process=tmp_path / "none")


def test_cuda_initialised_through_torch_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    assert reason_not_to_fork(process=tmp_path) == ""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert "torch.cuda is initialised" in reason_not_to_fork(process=tmp_path)


def test_a_thread_of_python_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fork_safety.threading, "active_count", lambda: 2)
    assert "1 other thread" in reason_not_to_fork(process=tmp_path)


@pytest.mark.parametrize(
    ("running", "waits", "said"),
    [
        ([1], 0, ""),
        ([2, 2, 1], 1, ""),  # counted twice a look
        ([2] * 50, LOOKS_AGAIN, "1 other thread"),
    ],
)
def test_a_thread_that_a_library_starts_and_that_ends_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, running: list[int], waits: int, said: str
) -> None:
    seen, waited = [*running], list[float]()
    monkeypatch.setattr(fork_safety.threading, "active_count", lambda: seen.pop(0) if len(seen) > 1 else seen[0])
    found = lasting_reason_not_to_fork(wait=waited.append)
    assert (len(waited), found.startswith(said), bool(found)) == (waits, True, bool(said))


def test_what_does_not_pass_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "reason_not_to_fork", lambda *_: "torch.cuda is initialised in it")
    said = lasting_reason_not_to_fork(wait=lambda seconds: pytest.fail("it was waited for"))
    assert said == "torch.cuda is initialised in it"


def test_the_process_that_forks_asks_before_every_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer to a request is the refusal, and it has not forked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(fork_safety, "reason_not_to_fork", lambda *_: "torch.cuda is initialised in it")
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it was forked"))
    with ours, theirs:
        read, write = os.pipe()
        try:
            assert forking.fork_worker({"folder": ".", "environment": {}}, theirs, [read, write, write], 1) == (
                "!torch.cuda is initialised in it"
            )
        finally:
            os.close(read)
            os.close(write)


class Refusing:
    """A nursery that may not fork."""

    def __init__(self) -> None:
        self.asked = 0

    def fork(self, *_: Any) -> int:
        self.asked += 1
        raise CannotFork("torch.cuda is initialised in it")


def test_children_are_fresh_interpreters_where_a_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, started = Refusing(), list[Any]()

    class Fresh:
        def __init__(self, *arguments: Any) -> None:
            started.append(arguments)

    monkeypatch.setattr(nursery, "_refused", "")
    monkeypatch.setattr(child, "nursery", lambda: None if nursery.refusal() else parent)
    monkeypatch.setattr(child, "_Fresh", Fresh)
    for _ in range(2):
        assert isinstance(child._start(3, 4, 5, False, None), Fresh)
    assert (len(started), parent.asked) == (2, 1)  # asked once, and not again for every child
    assert nursery.refusal() == (
        "each process was started afresh, which takes longer: the one that children are forked from may not be, because "
        "torch.cuda is initialised in it"
    )
    assert nursery.nursery() is None
