"""What one step of the training takes and consists of."""

from __future__ import annotations

from typing import Any

from perfaudit.measure import memory as taken
from perfaudit.measure.counted_script import ENOUGH_SECONDS
from perfaudit.measure.counters import counters
from perfaudit.measure.counters_as_run import counters_as_run
from perfaudit.measure.holder import Holder
from perfaudit.measure.process_state import process_state
from perfaudit.target import observed

Reply = dict[str, Any]  # JSON


def process(holder: Holder) -> Reply:
    """What holds for this whole process, see `measure.process_state`; under "workers", how many load the training's data."""
    return {**process_state(holder.scratch), "workers": getattr(holder.training.loader, "num_workers", 0)}


def has_ended(holder: Holder) -> Reply:
    """Whether a script has no further step: a question may have made one that raised."""
    return {"has_ended": holder.training.has_ended}


def memory(holder: Holder) -> Reply:
    """Peak bytes of tensors in one step, the process' own, and what it takes of its device: see `memory.StepMemory`."""
    training = holder.training
    seen = (
        taken.memory_of_script(training)
        if training.is_script
        else taken.memory_of_step(training, training.fixed_batch())
    )
    return {"peak_bytes": seen.tensors, "resident_bytes": taken.resident_bytes(), "taken_bytes": seen.bytes_on_device}


def room(holder: Holder) -> Reply:
    """What is free for another copy of this training, and what this one takes: see `memory.room`."""
    return taken.room(holder.training.device)


def observe(holder: Holder) -> Reply:
    """What the training does when it runs: see `target.observed`. A child that was observed is never timed."""
    holder.doing = "observing a training step"
    return observed.observe(holder.training)


def count(holder: Holder, as_run: bool = False, enough: float = ENOUGH_SECONDS) -> Reply:
    """What one training step consists of: see `measure.counters`, and `counters_as_run` for what only a training that
    is not observed shows. A child that was observed is never timed, nor asked for the other."""
    holder.doing = f"{holder.training.target.file}: counting one training step"
    return counters_as_run(holder.training) if as_run else counters(holder.training, enough)
