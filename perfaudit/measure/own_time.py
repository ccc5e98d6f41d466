"""How long steps take without what others on the machine take away: the wall clock less the waiting for cores. Child only.

Where others hold cores, a step of a training on the CPU takes longer by as much as its threads wait for one. That is another
amount each time. The system counts the waiting of each thread. The waiting of several threads at once is counted several times,
so what is left is bounded from below: by the processor time of the thread that makes the steps, and by that of all threads over
the number of cores. On a machine that nobody else uses this is the wall clock. A step may also wait for a disk or for another
process. That cannot be told from waiting for its other threads, so only trainings that do nothing of the kind are timed so
(`asleep_share`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from perfaudit.machine.limits import usable_cores
from perfaudit.target.flags import flags_set
from perfaudit.target.queue_time import queued_seconds


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of something: on the wall clock, of its thread on a core, of all threads on cores, and of their waiting for cores.

    The waiting of a thread that has ended is not known any more.
    """

    wall: float
    thread: float
    process: float
    queued: float

    def own(self, cores: int) -> float:
        """Seconds that it would take on so many free cores."""
        return min(self.wall, max(self.thread, self.process / cores, self.wall - self.queued))


class Stopwatch:
    """Reads the clocks of this process, from now on. To be read by the thread that makes it."""

    def __init__(self) -> None:
        self._queued, self._process = queued_seconds(), time.process_time()
        self._thread, self._wall = time.thread_time(), time.perf_counter()

    def time_spent(self) -> Spent:
        """Since it was made."""
        wall, thread = time.perf_counter() - self._wall, time.thread_time() - self._thread
        process = time.process_time() - self._process
        return Spent(wall, thread, process, max(0.0, queued_seconds() - self._queued))


def cores_of_process() -> int:
    """Cores on which the threads of this process run at once, at most: as many as they are given, or as torch has threads."""
    import torch

    return max(1, min(usable_cores(), torch.get_num_threads()))


def fits_cores() -> bool:
    """Whether threads have a core each: where they wait for each other's, that is not what others on the machine take."""
    import torch

    return bool(torch.get_num_threads() <= usable_cores())


def asleep_share(step: Callable[[], object], steps: int) -> float:
    """The share of these steps in which their thread neither ran nor waited for a core, made in one thread.

    With several threads a step also sleeps until the slowest of them is ready, which says nothing. torch has as many threads
    afterwards as before.
    """
    with flags_set({"threads": 1}):
        watch = Stopwatch()
        for _ in range(steps):
            step()
        spent = watch.time_spent()
    return max(0.0, 1 - (spent.thread + spent.queued) / spent.wall) if spent.wall else 0.0
