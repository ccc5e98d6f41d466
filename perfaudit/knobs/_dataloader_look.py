"""A look at a training in its child: what loading a batch and making a step take, without workers."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfaudit.knobs import Reply
from perfaudit.knobs._fewer_threads import COMPUTING
from perfaudit.records import NamedTuple
from perfaudit.target.batches import leaves_in, samples_in
from perfaudit.target.flags import flags_set
from perfaudit.target.queue_time import queued_seconds

BATCHES = 12  # to look at, after two that warm up,
LOOKING = 3.0  # seconds, at most
# Fewer are looked at, but FEWEST at least, where they take so many seconds and loading is known to so much of it, by its standard
# error.
LONG, KNOWN, FEWEST = 0.5, 0.02, 5
ALONE, FEWEST_ALONE = 6, 3  # steps on one thread; fewer where these, with their batches, take LONG
CALM = 0.02  # of the time of steps, which their threads wait for a core on a calm machine; chosen, not measured

_SHARED = "/dev/shm"


def look(training: Any) -> Reply:
    """Seconds to load each of some batches and of the steps on them, without workers; memory that grew and that is free.

    undisturbed: the mean seconds to load one, of factories without what it waited for a core; cpu_share: of these, the share
    of processor time; fetch_own: mean processor seconds of the thread that loads, which loading takes at least.

    On a busy machine, threads of a step spin while they wait for one that has no core, which counts as processor time. So a few
    more steps run on one thread there, where loading computes, and of a script, and each figure of a step is the smaller of two:

    - step, seconds: the median of the usual steps; the median of those on one thread, without what they waited for a core.
      step_least: of the usual steps, the shortest one.
    - step_cpu, processor seconds of all threads: the mean of the usual steps; the largest on one thread, times the mean of the
      usual ones over their median, because a few steps may miss the rare long ones.

    Raises ValueError for a loader with workers.
    """
    if training.loader.num_workers:
        raise ValueError("asked of a loader with workers")
    from perfaudit.measure.memory import resident_bytes

    if training.is_script:
        return _look_at_script(training)
    loads: list[_Load] = []
    steps: list[_Step] = []
    batch = None
    end, resident = math.inf, 0
    for number in range(2 + BATCHES):
        if number == 2:  # past the optimizer's first step and whatever is filled on first use
            end, resident = time.monotonic() + LOOKING, resident_bytes()
        if number > 4 and (time.monotonic() > end or _is_known(loads, steps)):
            break
        load, step, batch = _make_step(training)
        if number >= 2:
            loads.append(load)
            steps.append(step)
    grown = max(0, resident_bytes() - resident)
    alone = [] if _is_calm(loads, steps) else _on_one_thread(training, steps, lambda: _make_step(training)[1])
    return _reply_of(loads, steps, alone, batch, samples_in(batch), grown)


def _is_known(loads: Sequence[_Load], steps: Sequence[_Step]) -> bool:
    """Whether these batches have taken some time, and more of them would tell little more of the time that loading takes."""
    seconds = [load.seconds for load in loads]
    spent = sum(seconds) + sum(step.wall for step in steps)
    if spent < LONG or len(loads) < FEWEST:
        return False
    return statistics.stdev(seconds) <= KNOWN * math.sqrt(len(seconds)) * statistics.fmean(seconds)


def _is_calm(loads: Sequence[_Load], steps: Sequence[_Step]) -> bool:
    """Whether steps wait for no core and loading mostly waits: steps on one thread tell nothing more then.

    Where loading mostly computes, `_fewer_threads` asks what a step on one thread takes.
    """
    waited, passed = sum(step.queued for step in steps), sum(step.wall for step in steps)
    return waited <= CALM * passed and sum(load.cpu for load in loads) < COMPUTING * sum(
        load.undisturbed for load in loads
    )


def _look_at_script(training: Any) -> Reply:
    """The same of a script, whose steps load their batches themselves."""
    from perfaudit.measure.memory import resident_bytes

    training.whole_step()
    training.loads, resident, end = [], resident_bytes(), time.monotonic() + LOOKING
    steps: list[_Step] = []
    while len(steps) < BATCHES and (len(steps) < 3 or time.monotonic() < end):
        step, samples = _make_step_of_script(training)
        steps.append(step)
    found, grown = [*training.loads], max(0, resident_bytes() - resident)
    if not found:
        training.loads = None
        raise ValueError("asked of a script whose steps load nothing")
    alone = _on_one_thread(training, steps, lambda: _make_step_of_script(training)[0])
    training.loads = None
    loads = [_Load(load.wall, load.cpu, max(load.wall, load.cpu), load.own, False) for load in found]
    usual, alone = (
        [_Step(*(seconds * len(steps) / len(loads) for seconds in step)) for step in each] for each in (steps, alone)
    )
    return _reply_of(loads, usual, alone, found[-1].batch, samples, grown)


def _make_step(training: Any) -> tuple[_Load, _Step, Any]:
    """Load a batch, which comes last, and make a step on it."""
    load, batch = _load_batch(training)
    training.synchronize()
    began = _clocks()
    training.step(training.to_device(batch))
    training.synchronize()
    return load, _since(began), batch


def _make_step_of_script(training: Any) -> tuple[_Step, int]:
    """A step, without what its loads take, and how many samples it has."""
    seen, began = len(training.loads), _clocks()
    samples = training.whole_step()
    training.synchronize()
    step = _since(began)
    for load in training.loads[seen:]:
        step = _Step(step.wall - load.wall, step.cpu - load.cpu, step.queued - load.queued)
    return step, samples


def _on_one_thread(training: Any, steps: Sequence[_Step], make_step: Callable[[], _Step]) -> list[_Step]:
    """Some more steps, on one thread; none where that could take long, would not differ, or where there are no more."""
    import torch

    threads, found, began = torch.get_num_threads(), list[_Step](), time.monotonic()
    if training.device.type != "cpu" or threads == 1 or statistics.median(step.cpu for step in steps) > LOOKING:
        return []
    try:
        with flags_set({"threads": 1}):
            while len(found) < ALONE and time.monotonic() < began + (LOOKING if len(found) < FEWEST_ALONE else LONG):
                found.append(make_step())
    except Exception:
        if not training.is_script:
            raise  # a script that ends here has shown what was asked; who asks next is told that it has ended
    return found


def _reply_of(
    loads: list[_Load], steps: list[_Step], alone: list[_Step], batch: Any, samples: int, grown: int
) -> Reply:
    within = [load for load in loads if not load.restarts] or loads
    fetches = [load.seconds for load in within]
    fetch = statistics.fmean(fetches)
    walls, undisturbed = [step.wall for step in steps], [max(step.cpu, step.wall - step.queued) for step in alone]
    return {
        "batches": len(fetches),
        "fetch": fetch,
        "undisturbed": statistics.fmean(load.undisturbed for load in within),
        "fetch_own": statistics.fmean(load.own for load in within),
        "cv": statistics.stdev(fetches) / fetch if len(fetches) > 1 else 0.0,
        "cpu_share": min(1.0, sum(load.cpu for load in within) / max(sum(load.undisturbed for load in within), 1e-9)),
        "step": min(statistics.median(seconds) for seconds in (walls, undisturbed) if seconds),
        "step_least": min(walls),
        "step_cpu": _processor_seconds([step.cpu for step in steps], [step.cpu for step in alone]),
        "samples": samples,
        "batch_bytes": _bytes_in(batch),
        "shared_memory": _free_shared_memory(),
        "grown_bytes": grown,
    }


def _processor_seconds(usual: list[float], alone: list[float]) -> float:
    """Of a step: see `look`. usual: of steps as they are; alone: of some on one thread."""
    mean, median = statistics.fmean(usual), statistics.median(usual)
    return min(mean, max(alone) * max(1.0, mean / max(median, 1e-9))) if alone else mean


class _Step(NamedTuple):
    """Seconds of a step without its loading; of its processors, and of waiting for one, all threads together."""

    wall: float
    cpu: float
    queued: float


def _clocks() -> _Step:
    return _Step(time.perf_counter(), time.process_time(), queued_seconds())


def _since(began: _Step) -> _Step:
    return _Step(*(now - then for now, then in zip(_clocks(), began, strict=True)))


@dataclass(frozen=True, slots=True)
class _Load:
    """Seconds that loading one batch took, of which computing; without waiting for a core; and if it began an epoch.

    own: processor seconds of the thread that loads.
    """

    seconds: float
    cpu: float
    undisturbed: float
    own: float
    restarts: bool


def _load_batch(training: Any) -> tuple[_Load, Any]:
    restarts, began, own = len(training.restart_seconds), _clocks(), time.thread_time()
    batch = training.next_batch()
    (wall, cpu, queued), own = _since(began), time.thread_time() - own
    return _Load(wall, cpu, max(cpu, wall - max(0.0, queued)), own, len(training.restart_seconds) > restarts), batch


def _bytes_in(batch: Any) -> int:
    """Bytes of the tensors and arrays of a batch."""
    return sum(int(leaf.nbytes) for leaf in leaves_in(batch) if hasattr(leaf, "nbytes"))


def _free_shared_memory() -> int:
    """Bytes free where batches of workers wait for the training process; 0 where the system has no such place."""
    try:
        state = os.statvfs(_SHARED)
    except OSError:
        return 0
    return state.f_bavail * state.f_frsize
