"""The steps of a run as scalars, for TensorBoard. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perfaudit.script.rhythm import find_rounds
from perfaudit.script.spans import PHASES

Json = dict[str, Any]  # Any: nested JSON
_DATA_WAIT = PHASES.index("data_wait")


def scalars(updates: Sequence[Json], names: Sequence[str]) -> Iterator[tuple[str, float, int, float]]:
    """Tag, value, step (from 1) and seconds since the first update ended, of all steps that these updates make.

    names: of the optimizers, in the order of their numbers; of many the first ones. A step has the loss of its last backward
    pass, and a norm of the gradients for each optimizer.
    """
    rhythm = find_rounds([update["optimizer"] for update in updates])
    skipped = updates[: rhythm.bounds[0]] if rhythm.bounds else []
    at = sum(update["seconds"] for update in skipped) - sum(update["seconds"] for update in updates[:1])
    for number, (first, behind) in enumerate(rhythm.steps, start=1):
        step = updates[first:behind]
        seconds = sum(update["seconds"] for update in step)
        at += seconds
        yield "step/seconds", seconds, number, at
        yield "step/seconds waiting for data", sum(update["phases"][_DATA_WAIT] for update in step), number, at
        losses = [update["loss"] for update in step if "loss" in update]
        if losses:
            yield "training/loss", losses[-1], number, at
        norms = {update["optimizer"]: update["gradient_norm"] for update in step if "gradient_norm" in update}
        for optimizer, norm in norms.items():
            yield _norm_tag(optimizer, names), norm, number, at


def _norm_tag(optimizer: int, names: Sequence[str]) -> str:
    tag = "training/gradient norm"
    if len(names) < 2:
        return tag
    return " ".join([tag, f"{optimizer + 1}", *names[optimizer : optimizer + 1]])
