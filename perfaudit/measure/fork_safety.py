"""Whether children may be forked from this process: not once it holds an accelerator, nor while foreign threads run in it.

A child of a process that has initialised CUDA cannot use CUDA ("Cannot re-initialize CUDA in forked subprocess"), and
torch knows only what was initialised through torch; `/proc` says what other libraries have done. Imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from perfaudit.target.accelerator import device_in_use

_NVIDIA = ("/dev/nvidia", "/dev/dxg")  # the latter is a card seen from Windows' Linux
# The driver's interface. NVML, which alone is harmless to a fork, opens the same files without it.
_CUDA = "/libcuda.so"
# A thread that ends by itself has a second for it: importing the libraries in each process takes several.
LOOKS_AGAIN, LOOK_SECONDS = 10, 0.1
_OTHERS = ("/dev/kfd", "/dev/dri/renderD", "/dev/accel/")  # AMD, Intel, Habana: open only once a driver is initialised


def why_not_to_fork(in_use: str, open_files: Iterable[str], libraries: str, threads: int) -> str:
    """Why a process may not be forked from, "" where it may.

    in_use: the type of a device that torch has begun to use, "" for none. open_files: what its descriptors lead to.
    libraries: text of /proc/self/maps. threads: that run in it and that neither we nor what we import has started.
    """
    if in_use:
        return f"torch.{in_use} is initialised in it, and no fork of such a process can use the device"
    for path in open_files:
        if path.startswith(_OTHERS) or (path.startswith(_NVIDIA) and _CUDA in libraries):
            return f"{path} is open in it: something imported with torch has initialised the device's driver"
    if threads:
        return f"{threads} other thread{'s run' if threads > 1 else ' runs'} in it, and may hold a lock as it is forked"
    return ""


def reason_not_to_fork(threads_before: int = 1, process: Path = Path("/proc/self")) -> str:
    """The same of this process as it is now; where the system says nothing, only torch and Python are asked.

    threads_before: of the process, before it imported anything: whatever a start-up file had started is a foreign one.
    Threads that torch's and numpy's libraries start on import are not counted: they are made for being forked.
    """
    foreign = max(threads_before, threading.active_count()) - 1
    return why_not_to_fork(device_in_use(), _open_files(process), _libraries(process), foreign)


def lasting_reason_not_to_fork(threads_before: int = 1, wait: Callable[[float], None] = time.sleep) -> str:
    """The same behind an import: where threads alone speak against it, there is another look, and another, whether they end.

    A library may start one as it is imported that looks something up and ends.
    """
    for _ in range(LOOKS_AGAIN):
        why = reason_not_to_fork(threads_before)
        if not why or threading.active_count() <= 1:
            return why
        wait(LOOK_SECONDS)
    return reason_not_to_fork(threads_before)


def thread_count(process: Path = Path("/proc/self")) -> int:
    """Threads of this process, those of its libraries too; of Python alone where the system does not say."""
    try:
        return len(os.listdir(process / "task"))  # noqa: PTH208  # a name each, no paths
    except OSError:
        return threading.active_count()


def _open_files(process: Path) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for entry in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # the descriptor of this very look is gone again
                found.append(str(entry.readlink()))
    return found


def _libraries(process: Path) -> str:
    try:
        return (process / "maps").read_text(errors="replace")
    except OSError:
        return ""
