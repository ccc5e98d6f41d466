"""Timing steps of the training that a child holds."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

from perfaudit.measure.holder import Holder
from perfaudit.measure.own_time import Stopwatch, asleep_share, cores_of_process, fits_cores
from perfaudit.measure.step_times import step_seconds
from perfaudit.script.batch_contents import tokens_of
from perfaudit.target.freed_memory import page_faults

Reply = dict[str, Any]  # JSON

WAITED_STEPS = 2  # after each block, where the parts of a step can only be told by waiting; as few as a block has


def block(holder: Holder, steps: int, untimed: int = 1, counts_tokens: bool = False) -> Reply:
    """Run `untimed` steps, then `steps` timed ones, waiting for the device once at the end.

    Replies with the fields of `ledger.Block`, and under "each" with the seconds and samples of each step, and the page faults of
    all. The mean cost of an epoch's restart per step (starting workers, waiting for the first batch) is left out of the wall
    seconds and told apart; "with_restarts" says whether it is in the seconds of each. counts_tokens: of all batches, where each
    of them tells.
    """
    training = holder.training
    for _ in range(untimed):
        training.whole_step(holder.on_fixed_batch)
    training.synchronize()
    finite = training.last_loss is None or math.isfinite(training.last_loss.sum().item())
    training.phases.take()
    restarts = len(training.restart_seconds)
    seen: list[int] = []  # samples of all steps: those of which the time cannot be told are not in `samples`

    contents: list[tuple[int, int] | None] = []

    def samples_in(batch: Any) -> int:
        seen.append(training.samples_in(batch))
        if counts_tokens and not training.is_script:
            contents.append(tokens_of(batch))
        return seen[-1]

    told_batches = _told_batches(training, lambda batch: contents.append(tokens_of(batch))) if counts_tokens else None
    watch, faults = Stopwatch(), page_faults()
    with told_batches or contextlib.nullcontext():
        seconds, samples, with_restarts = step_seconds(training, steps, samples_in, holder.on_fixed_batch)
    faults = page_faults() - faults
    spent, restarted = watch.time_spent(), sum(training.restart_seconds[restarts:])
    is_alone = training.accelerator.is_host and fits_cores() and not multiprocessing.active_children()
    own = spent.own(cores_of_process()) - restarted if is_alone else None  # workers of its own hold cores for it
    phases = training.phases.take()
    restart_per_step = 0.0 if holder.on_fixed_batch else training.restart_per_step()
    if training.phases.needs_waits:
        phases = {**_phases_by_waiting(holder, steps), **phases}
    return {
        "steps": steps,
        "wall": spent.wall - restarted,
        "cpu": spent.process,
        "queued": spent.queued,
        "own": own,
        "samples": sum(seen),
        "restart_per_step": restart_per_step,
        "phases": phases,
        "finite": finite,
        **_sums(contents),
        "each": {"seconds": seconds, "samples": samples, "with_restarts": with_restarts, "page_faults": faults},
    }


@contextlib.contextmanager
def _told_batches(training: Any, tell: Callable[[Any], None]) -> Iterator[None]:
    """Inside, `tell` is told each batch that a script loads; other trainings give their batches back."""
    if not training.is_script:
        yield
        return
    before, training.on_batch = training.on_batch, tell
    try:
        yield
    finally:
        training.on_batch = before


def _sums(contents: list[tuple[int, int] | None]) -> Reply:
    """Tokens and padding of all batches; 0 where one does not tell."""
    told = [each for each in contents if each is not None]
    known = told if len(told) == len(contents) else []
    return {"tokens": sum(each[0] for each in known), "padding": sum(each[1] for each in known)}


def asleep(holder: Holder, steps: int) -> Reply:
    """Under "share", that of so many steps, made in one thread, in which this process neither computed nor waited for a core.

    None where a step fails or the training ends, on an accelerator, and with workers or other processes of its own, which hold
    cores for it.
    """
    training = holder.training
    if not training.accelerator.is_host or multiprocessing.active_children():
        return {"share": None}
    try:
        return {"share": asleep_share(training.whole_step, steps)}
    except (Exception, SystemExit):  # a training may end here, or fail: what was timed before stands
        return {"share": None}


def _phases_by_waiting(holder: Holder, steps: int) -> dict[str, float]:
    """Of a device without a clock: seconds of each part of further steps, with a wait after each, as of so many steps."""
    training = holder.training
    with training.phases.waiting():
        for _ in range(WAITED_STEPS):
            training.whole_step(holder.on_fixed_batch)
    return {name: seconds * steps / WAITED_STEPS for name, seconds in training.phases.take().items()}
