"""How long this process' threads have waited for a core: what others hold of the machine."""

from __future__ import annotations

import contextlib
import os

TASKS = "/proc/self/task"  # a folder for each thread of this process; Linux


def queued_seconds(but: int = 0) -> float:
    """Seconds this process' threads have waited for a core so far, all together; 0 where the system does not say.

    but: the native id of a thread to leave out. This is asked between steps: `Path` would take three times as long.
    """
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(TASKS):  # noqa: PTH208  # a path for each would cost more than reading it
            with contextlib.suppress(OSError, ValueError, IndexError):  # one that ended meanwhile
                total += _queued_nanoseconds(thread) if thread != str(but) else 0
    return total / 1e9


def _queued_nanoseconds(thread: str) -> int:
    clocks = os.open(f"{TASKS}/{thread}/schedstat", os.O_RDONLY)
    try:
        return int(os.read(clocks, 100).split()[1])
    finally:
        os.close(clocks)
