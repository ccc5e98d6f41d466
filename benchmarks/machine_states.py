"""The two states of a machine in which benchmarks measure: calm, and beside busy processes that they start themselves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

BUSY = 3  # processes
STATES = ("calm", "loaded")

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
    """The machine in one of STATES. "loaded": BUSY processes compute all the while, one of them through memory.

    They are pinned nowhere and have the priority of everyone else. They end with this process, whatever ends it.
    """
    if state not in STATES:
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
