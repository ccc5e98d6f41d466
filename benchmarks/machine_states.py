"""The two states of a machine in which benchmarks measure: calm, and beside busy processes that they start themselves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BUSY = 3  # processes
STATES = ("calm", "loaded")
SHARED = "shared"  # as others use it just then, whatever they do: nothing is started, and the load of a row tells

_COMPUTES = """
import os
parent = os.getppid()
number = 0
while os.getppid() == parent:
    for _ in range(100_000):
        number = (number * 48271 + 11) % 2147483647
"""
_MOVES_MEMORY = """
import os
import numpy
parent = os.getppid()
numbers = numpy.arange(4_000_000, dtype=numpy.float64)
while os.getppid() == parent:
    numbers = numpy.sqrt(numbers * 1.0001 + 1.0)
"""


@contextlib.contextmanager
def machine_in(state: str) -> Iterator[None]:
    """The machine in one of STATES, or SHARED. "loaded": BUSY processes compute all the while, one of them through memory.

    They are pinned nowhere and have the priority of everyone else. They end with this process, whatever ends it.
    """
    if state not in (*STATES, SHARED):
        raise ValueError(f"a machine is one of {', '.join(STATES)}, not {state!r}")
    programs = [_COMPUTES] * (BUSY - 1) + [_MOVES_MEMORY] if state == "loaded" else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen([sys.executable, "-c", program], env=environment) for program in programs]
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def busy_cores(seconds: float = 1.0) -> float | None:
    """How many cores were busy in the next so many seconds, while this process waits: whether calm is calm. Linux; else None."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    looks = []
    for _ in range(2):
        fields = [int(field) for field in stat.read_text().splitlines()[0].split()[1:9]]
        looks.append((sum(fields), fields[3] + fields[4]))  # all ticks of all cores; those idle or waiting for a disk
        if len(looks) < 2:
            time.sleep(seconds)
    ticks, idle = (after - before for before, after in zip(*looks, strict=True))
    return round((1 - idle / ticks) * (os.cpu_count() or 1), 2) if ticks else 0.0
