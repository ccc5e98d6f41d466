"""Timing steps of the training that a child holds."""

from __future__ import annotations

import math
import time
from typing import Any

from perfaudit.measure.holder import Holder
from perfaudit.measure.step_times import step_seconds
from perfaudit.target.queued import queued_seconds

Reply = dict[str, Any]  # JSON

WAITED_STEPS = 2  # after each block, where the parts of a step can only be told by waiting; as few as a block has


def block(holder: Holder, steps: int, untimed: int = 1) -> Reply:
    """Run `untimed` steps, then `steps` timed ones, waiting for the device once at the end.

    Replies with the fields of `ledger.Block`, and under "each" with the seconds and samples of each step. The mean cost of an
    epoch's restart per step (starting workers, waiting for the first batch) is left out of the wall seconds and told apart;
    "with_restarts" says whether it is in the seconds of each.
    """
    training = holder.training
    for _ in range(untimed):
        training.whole_step(holder.on_fixed_batch)
    training.synchronize()
    finite = training.last_loss is None or math.isfinite(training.last_loss.sum().item())
    training.phases.take()
    restarts = len(training.restart_seconds)
    seen: list[int] = []  # samples of all steps: those of which the time cannot be told are not in `samples`

    def samples_in(batch: Any) -> int:
        seen.append(training.samples_in(batch))
        return seen[-1]

    watch = _Stopwatch()
    seconds, samples, with_restarts = step_seconds(training, steps, samples_in, holder.on_fixed_batch)
    spent = watch.read()
    spent["wall"] -= sum(training.restart_seconds[restarts:])
    phases = training.phases.take()
    restart_per_step = 0.0 if holder.on_fixed_batch else training.restart_per_step()
    if training.phases.needs_waits:
        phases = {**_phases_by_waiting(holder, steps), **phases}
    return {
        "steps": steps,
        **spent,
        "samples": sum(seen),
        "restart_per_step": restart_per_step,
        "phases": phases,
        "finite": finite,
        "each": {"seconds": seconds, "samples": samples, "with_restarts": with_restarts},
    }


class _Stopwatch:
    """Seconds since it was made: on the wall clock, of this process, and of its threads' waiting for a core."""

    def __init__(self) -> None:
        self._queued, self._cpu, self._wall = queued_seconds(), time.process_time(), time.perf_counter()

    def read(self) -> dict[str, float]:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        queued = max(0.0, queued_seconds() - self._queued)  # a thread that ended takes its share with it
        return {"wall": wall, "cpu": cpu, "queued": queued}


def _phases_by_waiting(holder: Holder, steps: int) -> dict[str, float]:
    """Of a device without a clock: seconds of each part of further steps, with a wait after each, as of so many steps."""
    training = holder.training
    with training.phases.waiting():
        for _ in range(WAITED_STEPS):
            training.whole_step(holder.on_fixed_batch)
    return {name: seconds * steps / WAITED_STEPS for name, seconds in training.phases.take().items()}
