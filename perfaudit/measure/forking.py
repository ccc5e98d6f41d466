"""The process that children are forked from (`measure.nursery` starts it): it has torch imported and sees no user code."""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import os
import signal
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

from perfaudit.measure import fork_safety
from perfaudit.measure.imported_libraries import Variables, import_as_noted
from perfaudit.measure.worker import die_with, serve
from perfaudit.target.real_paths import know_modules

Reply = dict[str, Any]  # JSON
_SIZE = array.array("i").itemsize  # bytes of a descriptor


def nurse(channel: int, parent: int) -> None:
    """Import torch, then fork a worker for each request on a socket, and tell how workers ended."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = fork_safety.thread_count()
    # A library that asks for a device on import then initialises none.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    with contextlib.suppress(ImportError):
        import torch
        import torch._dynamo  # noqa: F401  # the first optimizer imports it, which takes another second
    know_modules()
    requests = socket.socket(fileno=channel)
    ended: dict[int, int] = {}
    from_libraries: Variables = {}  # what libraries have set as they were imported here
    while True:
        data, ancillary, _, _ = requests.recvmsg(1 << 20, socket.CMSG_SPACE(3 * _SIZE))
        if not data:
            os._exit(0)
        request = json.loads(data)
        if request["do"] == "preload":
            for name in request["modules"]:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
            know_modules()
            requests.sendall(b"-")
            continue
        if request["do"] == "preload as":
            spoilt = preload_as(_descriptors_in(ancillary)[0], from_libraries, threads)
            requests.sendall((spoilt or "-").encode())
            continue
        if request["do"] == "poll":
            requests.sendall(_exit_code(request["pid"], ended).encode())
            continue
        descriptors = _descriptors_in(ancillary)
        request["environment"] |= {name: value for name, value in from_libraries.items() if value is not None}
        answer = fork_worker(request, requests, descriptors, threads)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.sendall(answer.encode())


def preload_as(told: int, from_libraries: Variables, threads: int) -> str:
    """Import what this descriptor says that a child has imported: why none may be forked after that, "" if they may.

    from_libraries: gets the variables that libraries have set. threads: see `fork_worker`.
    """
    with os.fdopen(told, "rb") as file:
        why, variables = import_as_noted(
            json.loads(file.read()), partial(fork_safety.lasting_reason_not_to_fork, threads)
        )
    from_libraries |= variables
    know_modules()
    return why


def _descriptors_in(ancillary: Sequence[tuple[int, int, bytes]]) -> array.array[int]:
    """The descriptors that came with a message."""
    found = array.array("i")
    data = ancillary[0][2]
    found.frombytes(data[: len(data) - len(data) % _SIZE])
    return found


def fork_worker(request: Reply, requests: socket.socket, descriptors: Sequence[int], threads: int) -> str:
    """Fork a worker on these descriptors (commands, replies, output): its pid, or "!" and why none may be forked.

    threads: of this process, before it imported anything.
    """
    if why := fork_safety.reason_not_to_fork(threads):
        return f"!{why}"
    commands, replies, output = descriptors
    here = os.getpid()
    pid = os.fork()
    if pid == 0:
        requests.close()
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        try:
            serve(commands, replies, here)
        finally:
            os._exit(1)
    return str(pid)


def _exit_code(pid: int, ended: dict[int, int]) -> str:
    """The exit code of a child, minus the signal if one ended it; "-" while it runs."""
    if pid not in ended:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            done, status = pid, 0
        if done:
            ended[pid] = os.waitstatus_to_exitcode(status)
    return str(ended[pid]) if pid in ended else "-"
