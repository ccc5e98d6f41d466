"""Whether children may be forked from this process: not once it holds an accelerator, nor while foreign threads run in it.

A child of a process that has initialised CUDA cannot use CUDA ("Cannot re-initialize CUDA in forked subprocess"), and
torch notices only what was initialised through torch. Imports nothing; `/proc` says what other libraries have done.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

_NVIDIA = ("/dev/nvidia", "/dev/dxg")  # the latter is a card seen from Windows' Linux
_CUDA = (
    "/libcuda.so"  # the driver's interface; NVML, which alone is harmless to a fork, opens the same files without it
)
_OTHERS = ("/dev/kfd", "/dev/dri/renderD", "/dev/accel/")  # AMD, Intel, Habana: open only once a driver is initialised
_BACKENDS = ("cuda", "xpu")  # of torch, with an `is_initialized` that imports nothing


def why_not_to_fork(initialized: Iterable[str], open_files: Iterable[str], libraries: str, threads: int) -> str:
    """Why a process may not be forked from, "" where it may.

    initialized: backends of torch that are. open_files: what its descriptors lead to. libraries: text of /proc/self/maps.
    threads: that run in it and none of ours nor of the libraries that we import has started.
    """
    for name in initialized:
        return f"torch.{name} is initialised in it, and no fork of such a process can use the device"
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
    return why_not_to_fork(_initialized(), _open_files(process), _libraries(process), foreign)


def thread_count(process: Path = Path("/proc/self")) -> int:
    """Threads of this process, those of its libraries too; of Python alone where the system does not say."""
    try:
        return len(os.listdir(process / "task"))  # noqa: PTH208  # a name each, no paths
    except OSError:
        return threading.active_count()


def _initialized() -> list[str]:
    torch = sys.modules.get("torch")
    backends = [(name, getattr(torch, name, None)) for name in _BACKENDS]
    return [name for name, backend in backends if getattr(backend, "is_initialized", lambda: False)()]


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
