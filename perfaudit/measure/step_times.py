"""Seconds of each of some training steps, on the device's own clock where it has one. Child only."""

from __future__ import annotations

import itertools
import time
from typing import Any


def step_seconds(training: Any, steps: int, fixed: bool = False) -> tuple[list[float], bool]:
    """Seconds of each step, and whether restarts of the loader's epoch are in them. training: target.training.Training.

    Restarts are left out; `training.restart_seconds` has them. On CUDA the host does not wait between steps: one event
    stands in the stream after each, and steps in which an epoch restarts are dropped, because how much of the host's
    waiting the device had to wait for cannot be told. Where every step restarts, as in epochs of one batch, none is dropped.
    """
    if training.device.type == "cuda":
        return _by_events(training, steps, fixed)
    seconds = []
    for _ in range(steps):
        restarts = len(training.restart_seconds)
        started = time.perf_counter()
        training.whole_step(fixed)
        training.synchronize()
        seconds.append(time.perf_counter() - started - sum(training.restart_seconds[restarts:]))
    return seconds, False


def _by_events(training: Any, steps: int, fixed: bool) -> tuple[list[float], bool]:
    import torch

    def mark() -> Any:  # torch.cuda.Event
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(training.device))
        return event

    marks, restarted = [mark()], []
    for _ in range(steps):
        restarts = len(training.restart_seconds)
        training.whole_step(fixed)
        marks.append(mark())
        restarted.append(len(training.restart_seconds) > restarts)
    training.synchronize()
    seconds = [before.elapsed_time(after) / 1e3 for before, after in itertools.pairwise(marks)]
    kept = [one for one, with_restart in zip(seconds, restarted, strict=True) if not with_restart]
    return (kept, False) if kept else (seconds, True)
