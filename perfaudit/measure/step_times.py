"""Seconds of each of some training steps, on the device's own clock where it has one. Child only."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from perfaudit.target.accelerator import Accelerator, accelerator_of


def step_seconds(
    training: Any, steps: int, samples_in: Callable[[Any], int], fixed: bool = False
) -> tuple[list[float], list[int], bool]:
    """Seconds and samples of each step, and whether restarts of the loader's epoch are in the seconds.

    training: training.factory_training.FactoryTraining. samples_in: number of samples of a batch.

    Restarts are left out; `training.restart_seconds` has them. The host never waits for the device between steps, as it does not
    in the user's training. Where the device has a clock, one event stands in its queue after each step, and steps in which an
    epoch restarts are dropped, because how much of the host's waiting the device had to wait for cannot be told. Where every
    step restarts, as in epochs of one batch, none is dropped. A device without a clock is waited for at the end, and each step
    counts as their mean.
    """
    accelerator = accelerator_of(training.device)
    if accelerator.has_clock:
        return _by_events(training, accelerator, steps, samples_in, fixed)
    if not accelerator.is_host:
        return _together(training, steps, samples_in, fixed)
    seconds, samples = [], []
    for _ in range(steps):
        restarts = len(training.restart_seconds)
        started = time.perf_counter()
        batch = training.whole_step(fixed)
        seconds.append(time.perf_counter() - started - sum(training.restart_seconds[restarts:]))
        samples.append(samples_in(batch))
    return seconds, samples, False


def _together(
    training: Any, steps: int, samples_in: Callable[[Any], int], fixed: bool
) -> tuple[list[float], list[int], bool]:
    restarts, started = len(training.restart_seconds), time.perf_counter()
    samples = [samples_in(training.whole_step(fixed)) for _ in range(steps)]
    training.synchronize()
    spent = time.perf_counter() - started - sum(training.restart_seconds[restarts:])
    return [spent / steps] * steps, samples, False


def _by_events(
    training: Any, accelerator: Accelerator, steps: int, samples_in: Callable[[Any], int], fixed: bool
) -> tuple[list[float], list[int], bool]:
    marks, samples, restarted = [accelerator.event()], [], []
    for _ in range(steps):
        restarts = len(training.restart_seconds)
        batch = training.whole_step(fixed)
        marks.append(accelerator.event())
        samples.append(samples_in(batch))
        restarted.append(len(training.restart_seconds) > restarts)
    training.synchronize()
    seconds = [accelerator.seconds_between(before, after) for before, after in itertools.pairwise(marks)]
    if all(restarted):
        return seconds, samples, True
    kept = [i for i, with_restart in enumerate(restarted) if not with_restart]
    return [seconds[i] for i in kept], [samples[i] for i in kept], False
