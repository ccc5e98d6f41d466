"""The first steps of a training from one seed: their losses, gradients, and how far these move by themselves."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.measure import exact as doubles
from perfaudit.measure import gradients, of_script
from perfaudit.measure.holder import Holder
from perfaudit.measure.memory import memory_of_step
from perfaudit.measure.rounding import rounded_to
from perfaudit.target.autocasts import autocasts
from perfaudit.target.random_streams import seed_all
from perfaudit.training.factory_training import FactoryTraining
from perfaudit.training.parameters import nudge as nudge_parameters
from perfaudit.training.parameters import take_parameters

Reply = dict[str, Any]  # JSON


def losses(
    holder: Holder,
    steps: int,
    seed: int,
    save_state: str = "",
    load_state: str = "",
    save_gradients: str = "",
    load_gradients: str = "",
    build_seed: int | None = None,
    nudge: float = 0.0,
    observe: bool = False,
    run: int = 1,
    rounded: str = "",
    memory: bool = False,
    may_lack: bool = False,
) -> Reply:
    """Losses of the first steps from one seed, as exact hexadecimal floats; the training goes on afterwards.

    With them, sums over the user's moving average after those steps, so that a patch of it is checked too.

    save_state / load_state: a file to keep the initial parameters in, or to take them from (only keys that this
    model has; where the file lacks one, nothing is taken and "why" names it). save_gradients / load_gradients: a file
    to keep the gradients of the first step in, or to compare them with ("gradients": see `measure.gradients`).
    build_seed: build the training again from this seed first. nudge: move each parameter by this share of itself, up
    or down by chance. observe: say under "dtypes" which types autocast was entered with. run: tells apart questions
    that are the same. rounded: compute as in this type, one way for each run (see `measure.rounding`). memory: the peak
    of one more step too, as the verb `memory` has it. may_lack: a parameter that the model lacks had no gradient, or it counts
    as a gap.
    """
    import torch

    holder.doing = "the first steps"
    if holder.training.is_script:
        asked = of_script.Request(
            steps, seed, save_state, load_state, save_gradients, load_gradients, may_lack, nudge, observe, memory
        )
        if build_seed is not None:
            raise TargetError("a script draws from the seed that it sets itself")
        with _in_type(rounded, run):
            return of_script.first_losses(holder.training, asked)
    if build_seed is not None:
        holder.training.close()
        if holder.training.folder:  # its factories begin where they did the first time
            os.chdir(holder.training.folder)
        holder.training = FactoryTraining(holder.training.target, str(holder.training.device), seed=build_seed)
    training = holder.training
    if save_state:
        torch.save(training.model.state_dict(), save_state)
    why = take_parameters(training.model, load_state) if load_state else ""
    if nudge:
        nudge_parameters(training.model, nudge)
    losses: list[str] = []
    found: Reply = {}
    batch: Any = None

    def look() -> None:
        if save_gradients:
            gradients.save(training, batch, save_gradients)
        if load_gradients:
            found["gradients"] = gradients.compare_with_file(training, batch, load_gradients, may_lack=may_lack)

    seed_all(seed)
    with (
        autocasts() if observe else contextlib.nullcontext(set[str]()) as dtypes,
        gradients.after_first_backward(training, look),
        _in_type(rounded, run),
    ):
        for _ in range(steps):
            batch = training.to_device(training.next_batch())
            losses.append(float(training.step(batch).detach()).hex())
    average = [value.hex() for value in training.average_sums()]
    if memory:
        seen = memory_of_step(training, training.fixed_batch())
        found["memory"] = {"peak_bytes": seen.tensors, "taken_bytes": seen.bytes_on_device}
    return {"losses": losses, "average": average, "why": why, "dtypes": sorted(dtypes), **found}


def _in_type(rounded: str, draw: int) -> contextlib.AbstractContextManager[None]:
    return rounded_to(rounded, draw) if rounded else contextlib.nullcontext()


def sensitivity(holder: Holder, seed: int, other_seed: int, nudge: float, rounded: str = "") -> Reply:
    """How far the first gradients move by themselves, from another random stream, and when parameters are nudged.

    rounded: compute as in this type instead of nudging (see `measure.rounding`).
    """
    holder.doing = "the gradients of the first step"
    if holder.training.is_script:
        raise TargetError("a script's step is not made again")
    model = holder.training.model

    if rounded:
        return {"sensitivity": gradients.sensitivity(
            holder.training, seed, other_seed, lambda draw: _in_type(rounded, draw), seed_all
        )}  # fmt: skip

    def move_parameters(draw: int) -> contextlib.AbstractContextManager[None]:
        if draw:
            nudge_parameters(model, -nudge, draw - 1)  # back, but for roundings and the square of the nudge
        nudge_parameters(model, nudge, draw)
        return contextlib.nullcontext()

    return {"sensitivity": gradients.sensitivity(holder.training, seed, other_seed, move_parameters, seed_all)}


def exact(holder: Holder, steps: int, seed: int, nudge: float = 0.0) -> Reply:
    """The first steps with every float a double: see `measure.exact`. "why" where that cannot be.

    A child that was asked this is never timed, nor asked for anything else.
    """
    holder.doing = "the first steps in double precision"
    if holder.training.is_script:
        return {"why": "a script computes in the types that it builds"}
    try:
        return doubles.first_steps(holder.training, steps, seed, nudge)
    except Exception as error:  # kernels without doubles, casts that nobody sees: then nothing is known of it
        said = str(error).splitlines()[0][:200] if str(error) else ""
        return {"why": said if isinstance(error, doubles.NotInDoubles) else f"{type(error).__name__}: {said}"}
