"""Nurseries that are forks of one process with torch imported: each command that a test starts would import it anew.

Whoever of a session wants one first starts that process, one for each seed with which texts are hashed, and all workers of pytest
share it. It ends with the session. A nursery from it does what `measure.nursery` says, with the cores of the process that has it
and no capability that this may not have, and ends with that process. `forked_programs` has another one shared in the same way.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from perfaudit.measure import nursery

HERE = str(Path(__file__).parent)
FOLDER = "PERFAUDIT_TESTS_NURSERIES"  # variable: where the sockets of the servers are, by the seed
SESSION = "PERFAUDIT_TESTS_SESSION"  # variable: the process with which the servers end
SEEDS = (None, "2")  # in which the gate counts; a nursery with another one is made as ever
_CAPBSET_DROP, _CAPABILITY_VERSION_3 = 24, 0x20080522  # of prctl(2) and capset(2)
_IMPORT = f"import sys\nsys.path.insert(0, {HERE!r})\nimport served_nursery\nsys.path.remove({HERE!r})\n"
_SERVE = f"{_IMPORT}del sys.path[0]\nserved_nursery.serve(*[int(sys.argv.pop(1)) for _ in range(2)])\n"
USE = f"{_IMPORT}served_nursery.use()\n"  # what a program of a test begins with
# In the place of `python -m perfaudit`, where a test is not about the processes that the command leaves.
PERFAUDIT = [sys.executable, "-c", f"{USE}from perfaudit.cli import main\nmain()\n"]


class Served(nursery.Nursery):
    """The nursery of this process, from the server of its seed."""

    def __init__(self) -> None:
        seed = os.environ.get("PYTHONHASHSEED")
        self._is_served = seed in SEEDS and FOLDER in os.environ
        if self._is_served:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.settimeout(nursery.START_SECONDS)
            self._socket.connect(server(seed or "any", socket.SOCK_SEQPACKET, lambda listener: _start(listener, seed)))
        else:
            super().__init__()

    def alive(self) -> bool:
        if not self._is_served:
            return super().alive()
        said = select.select([self._socket], [], [], 0)[0]
        return not said or bool(self._socket.recv(1, socket.MSG_PEEK))

    def close(self) -> None:
        if self._is_served:
            self._socket.close()  # it ends by that, and with it all that it has forked
        else:
            super().close()


def begin_session() -> str:
    """From now on servers may be started, by this process and by those that it starts. Gives the folder of their sockets."""
    os.environ[FOLDER], os.environ[SESSION] = tempfile.mkdtemp(), str(os.getpid())
    return os.environ[FOLDER]


def end_session(folder: str) -> None:
    """Servers see within a second that they are no longer wanted."""
    shutil.rmtree(folder)
    del os.environ[FOLDER], os.environ[SESSION]


def use() -> None:
    """Have the nurseries of this process from servers."""
    vars(nursery)["Nursery"] = Served


def serve(descriptor: int, session: int) -> None:
    """Fork a nursery for each process that connects, as long as the session lasts."""
    os.sched_setaffinity(0, os.sched_getaffinity(session))  # whoever started this may have fewer cores
    import torch
    import torch._dynamo  # noqa: F401  # as `measure.forking` does

    from perfaudit.measure.forking import nurse
    from perfaudit.target.real_paths import know_modules

    know_modules()
    gc.collect()
    gc.freeze()  # a fork copies what its collector looks at
    fork_for_each(descriptor, session, lambda connection: nurse(connection.detach(), os.getppid()))


def bounding_set(pid: int | str) -> int:
    """The capabilities that a process and what it starts can have, a bit each."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("CapBnd:")]
    return int(line.split()[1], 16)


def _lose(capabilities: int) -> None:
    """From now on neither this process nor what it starts has any of these: who is root may do less without."""
    if not capabilities:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(capabilities.bit_length()):
        if capabilities >> number & 1 and libc.prctl(_CAPBSET_DROP, number, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "a capability stays")
    asked = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    held = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: the low halves, then the high ones
    if libc.capget(asked, held):
        raise OSError(ctypes.get_errno(), "capabilities cannot be read")
    for place in range(6):
        held[place] &= ~(capabilities >> 32 * (place // 3))
    if libc.capset(asked, held):
        raise OSError(ctypes.get_errno(), "a capability stays")


def fork_for_each(descriptor: int, session: int, serve_one: Callable[[socket.socket], object]) -> None:
    """Have a fork serve each process that connects, with what that process may use and do, as long as the session lasts."""
    listener = socket.socket(fileno=descriptor)
    place = Path(listener.getsockname())
    while place.exists() and Path(f"/proc/{session}").exists():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        if not select.select([listener], [], [], 1.0)[0]:
            continue
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            os.setsid()
            peer, *_ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            os.sched_setaffinity(0, os.sched_getaffinity(peer))
            _lose(bounding_set("self") & ~bounding_set(peer))
            serve_one(connection)
            os._exit(0)
        connection.close()


def server(name: str, kind: socket.SocketKind, start: Callable[[int], object]) -> str:
    """The address of the session's server of this name; where there is none yet, it is started to listen on a descriptor."""
    place = Path(os.environ[FOLDER], name)
    with place.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with socket.socket(socket.AF_UNIX, kind) as listener:
                listener.bind(str(place))
                listener.listen(64)
                start(listener.fileno())
    return str(place)


def _start(listener: int, seed: str | None) -> None:
    environment = nursery.child_environment()
    environment.pop("PYTHONHASHSEED", None)
    subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(listener), os.environ[SESSION]],
        cwd="/",
        env=environment | ({"PYTHONHASHSEED": seed} if seed else {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(listener,),
        start_new_session=True,
    )
