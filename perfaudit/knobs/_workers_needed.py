"""How many workers a training step needs, and what starting them costs, from one look without any.

Formula: w* = ceil(fetch · (1 + ½ · cv) / step), with the seconds to load a batch in the training process, without what it
waited for a core, their coefficient of variation, and the seconds of a step. `seen` is the reply to "instrument", see
`_dataloader_look`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfaudit.knobs import Reply

MOST_WORKERS = 32  # each is a process with a copy of the dataset's Python objects; none of our runs gained beyond 16
SHARED_MEMORY = 0.5  # of what is free in /dev/shm may fill with batches that wait; full, it kills workers
LEAK_BYTES = 64 << 20  # that a process may grow by during the look, for pools of allocators and caches
RACED_SECONDS = 12.0  # of steps in all processes of one generation together: four, two blocks of each in three rounds

# A number of workers is sure from twice FEW on, where those between it and its neighbours are more than a few: loads and steps
# take the same each time to this share, loads wait for all but so much of their time, and batches of so many workers were seen
# to come as fast as steps use them, to this share. Chosen, not measured.
FEW, STEADY, COMPUTING, IN_TIME = 4, 0.1, 0.25, 0.05

Start = Sequence[float]  # seconds to start one worker, then until its first batch is there, and to stop it


def wanted_workers(seen: Reply) -> int:
    """How many workers load batches as fast as the step uses them."""
    fetch, cv, step = float(seen["undisturbed"]), float(seen["cv"]), float(seen["step"])
    return max(1, math.ceil(fetch * (1 + cv / 2) / max(step, 1e-6)))


def is_sure(seen: Reply, workers: int, most: int, cores: int) -> bool:
    """Whether the formula gives this number of workers, by figures that hardly vary: other numbers need not be raced.

    Loading must mostly wait, because workers that compute slow each other and the step down. `keeps_up` says whether a disk
    serves so many workers at once.
    """
    step, computing = float(seen["step"]), float(seen["cpu_share"])
    if not 2 * FEW <= workers < most or workers != wanted_workers(seen) or not step:
        return False
    is_steady = float(seen["cv"]) <= STEADY and step <= (1 + STEADY) * float(seen.get("step_least", 0.0))
    needed = workers * computing + float(seen["step_cpu"]) / step  # cores, of all processes together
    return is_steady and computing <= COMPUTING and needed <= cores


def keeps_up(seen: Reply, seconds_a_batch: float | None) -> bool:
    """Whether batches that workers were seen to load come as fast as steps use them."""
    return seconds_a_batch is not None and seconds_a_batch <= (1 + IN_TIME) * float(seen["step"])


def most_workers(seen: Reply, cores: int, prefetch: int) -> int:
    """How many workers can pay: those that compute need a core each, those that wait for a disk share one."""
    computing = max(cores, math.floor(cores / max(float(seen["cpu_share"]), cores / MOST_WORKERS)))
    queued = prefetch * max(1, int(seen["batch_bytes"]))
    free = int(seen["shared_memory"])
    fitting = math.floor(SHARED_MEMORY * free / queued) if free else MOST_WORKERS
    return max(1, min(MOST_WORKERS, computing, fitting))


def start_seconds(seen: Reply, start: Start, workers: int) -> float:
    """Seconds that so many workers cost at the start of every epoch: forking, the first batch's delay, stopping."""
    fork, first, stop = start
    return float(workers * fork + max(0.0, first - seen["fetch"]) + stop)


def epoch_seconds(seen: Reply, workers: int, batches: int) -> float:
    """Seconds of an epoch once workers run, by the prediction."""
    return float(batches * max(seen["step"], seen["fetch"] / max(1, workers)))


def leak(seen: Reply, memory: int) -> str:
    """Why a training that keeps what it loads is not measured for minutes in several processes; "" where it fits."""
    steps = RACED_SECONDS / max(float(seen["fetch"]) + float(seen["step"]), 1e-6)
    a_batch = int(seen["grown_bytes"]) / max(1, int(seen["batches"]))
    if int(seen["grown_bytes"]) < LEAK_BYTES or a_batch * steps < memory:
        return ""
    return (
        f"the training process grew by {seen['grown_bytes'] / (1 << 20):.0f} MiB over {seen['batches']} batches "
        f"({a_batch / (1 << 20):.1f} MiB each); it keeps what it loads, and measuring would fill the memory"
    )
