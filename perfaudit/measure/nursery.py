"""A process that has torch imported and forks the children from it: importing it anew for each variant took longest.

It is started with the first child, never imports the user's code or touches a device, and ends with this process. Before
each fork it makes sure of that (`fork_safety`). Linux only; elsewhere, on request, and where something has initialised a
device in it all the same, each child is a fresh interpreter.
"""

from __future__ import annotations

import array
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from perfaudit.machine.limits import usable_cores
from perfaudit.machine.others import cores_missing
from perfaudit.script.quiet_terminal import quiet_input

START_SECONDS = 120.0  # importing torch on a loaded machine took up to 30 s here
PATIENCE = 3  # times that long, for a trainer and all that it brings along

# Libraries that do nothing on import but take a second or more for it; everything else the children import themselves.
LIBRARIES = {"numpy", "scipy", "sklearn", "PIL", "pandas", "torchvision"}

_START_WORKER = """
import sys
package = sys.argv.pop(1)
sys.path.append(package)
from perfaudit.measure.{module} import {entry} as enter
sys.path.remove(package)
if sys.path and sys.path[0] == "":
    del sys.path[0]
arguments = [int(argument) for argument in sys.argv[1:]]
sys.argv[1:] = []
enter(*arguments)
"""


def start_command(module: str, entry: str, *arguments: int) -> list[str]:
    """The command that runs a function of a module of this folder in a new interpreter, with these numbers.

    The package's parent folder is on the path only for the import of the module, so that the user's modules are found as
    `python model.py` finds them.
    """
    package = str(Path(__file__).resolve().parents[2])
    return [sys.executable, "-c", _START_WORKER.format(module=module, entry=entry), package, *map(str, arguments)]


class CannotFork(Exception):
    """The process that forks the children may not be forked from, and why."""


class Nursery:
    """Forks workers on request and knows how they ended, because they are its children.

    has_libraries: it has imported what one target imports. is_spoilt: no more are to be forked from it.
    """

    has_libraries = is_spoilt = False

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._process = subprocess.Popen(
            start_command("forking", "nurse", theirs.fileno(), os.getpid()),
            stdin=quiet_input(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            env=child_environment(),
        )
        theirs.close()
        ours.settimeout(START_SECONDS)

    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, commands: int, replies: int, output: int, folder: Path | None = None) -> int:
        """The pid of a new worker that reads commands, writes replies and prints on these descriptors. Raises OSError.

        Raises CannotFork where the process is not one to fork from. folder: its working directory, this process' own without it.
        """
        descriptors = array.array("i", [commands, replies, output])
        place = str(folder or Path.cwd())
        request = {"do": "fork", "folder": place, "environment": child_environment()}  # as they are now
        self._socket.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        reply = self._patient_reply()
        if reply.startswith("!"):
            raise CannotFork(reply[1:])
        return int(reply)

    def preload(self, modules: list[str]) -> None:
        """Import libraries that every child would import anew, if they are in LIBRARIES; a failure is left to the child."""
        wanted = [name for name in modules if name.partition(".")[0] in LIBRARIES]
        if wanted:
            self._preload(wanted)

    def _preload(self, modules: list[str]) -> None:
        with contextlib.suppress(OSError):  # it died of the import; children are started afresh then
            self._socket.sendall(json.dumps({"do": "preload", "modules": modules}).encode())
            self._patient_reply()

    def wait(self) -> None:
        """Wait until it has torch imported."""
        self._preload([])

    def preload_as(self, noted: dict[str, Any]) -> str:
        """Import what a child of this process has imported, see `imported_libraries`: why none may be forked then, or "".

        Where they may not, it goes on with those that it has, and the next ones are another nursery's.
        """
        self.has_libraries = True
        try:
            with tempfile.TemporaryFile() as told:  # larger than a message may be
                told.write(json.dumps(noted).encode())
                told.seek(0)
                request, descriptors = json.dumps({"do": "preload as"}).encode(), array.array("i", [told.fileno()])
                self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
                why = self._patient_reply()
        except OSError as error:  # it died of the import, say
            why = str(error)
        self.is_spoilt = bool(why)
        return why

    def _patient_reply(self) -> str:
        """The reply to what takes long on a busy machine. Raises OSError where there is none; nothing is asked of it then."""
        for _ in range(PATIENCE):
            with contextlib.suppress(TimeoutError):
                return self._reply()
        self.close()  # a reply that came later would be taken for another one
        raise OSError("the process that starts the children does not answer")

    def poll(self, pid: int) -> int | None:
        """The exit code of a worker as `subprocess` counts it (minus the signal), None while it runs. Raises OSError."""
        self._socket.sendall(json.dumps({"do": "poll", "pid": pid}).encode())
        answer = self._patient_reply()
        return int(answer) if answer else None

    def _reply(self) -> str:
        data = self._socket.recv(4096)
        if not data:
            raise OSError("the process that starts the children has ended")
        text = data.decode()
        return "" if text == "-" else text

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
        self._process.kill()
        self._process.wait()


# Rounds for which a thread of libgomp spins before it sleeps, where others hold cores; its own default is 300,000, some 10 ms.
# There, threads that spin that long for neighbours without a core made steps many times as long. Chosen by hand from a few
# runs of char_gpt and digits_cnn on two cores. Where the cores are free, threads wait as they do for the user: on two cores
# loader workers wait for threads that spin, and with the limit a loader looked a third faster that gained little without it.
SPIN_COUNT = "5000"
HELD = 0.25  # of the usable cores, from which on others hold them


def child_environment() -> dict[str, str]:
    """The environment of children: as ours, output at once, and threads spin briefly where others hold the cores."""
    return {**_waits(), **os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _waits() -> dict[str, str]:
    """How threads wait where the user does not say it. The machine is asked once, so that all children are alike."""
    if "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        return {}
    return {"GOMP_SPINCOUNT": SPIN_COUNT} if _others_hold_cores() else {}


@functools.cache
def _others_hold_cores() -> bool:
    usable = usable_cores()
    return cores_missing(usable) > HELD * usable


_nurseries: dict[str | None, Nursery] = {}  # by the seed with which they hash texts, which a fork cannot change
_refused = ""  # why it may not be forked from


def nursery() -> Nursery | None:
    """The nursery of this process for the present PYTHONHASHSEED, started when it is first needed.

    None where children are started afresh.
    """
    if sys.platform != "linux" or _refused:
        return None
    seed = os.environ.get("PYTHONHASHSEED")
    found = _nurseries.get(seed)
    if found is None or found.is_spoilt or not found.alive():
        import atexit

        found = _nurseries[seed] = Nursery()
        atexit.register(found.close)
    return found


def forget_libraries() -> None:
    """Have the next children forked from a process without the libraries of the last target."""
    for parent in _nurseries.values():
        parent.is_spoilt |= parent.has_libraries


def refuse(why: str) -> None:
    """Fork no more in this process: what was initialised in the nursery stays so, and a new one would be like it."""
    global _refused
    _refused = why


def refusal() -> str:
    """A sentence on why children were not forked, "" where they were or where nobody asked for it."""
    if not _refused:
        return ""
    return (
        "each process was started afresh, which takes longer: the one that children are forked from may not be, because "
        f"{_refused}"
    )
