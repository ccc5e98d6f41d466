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
    build_seed: int | None = None,
    run: int = 1,
    rounded: str = "",
    **asked: Any,  # Any: JSON
) -> Reply:
    """Losses of the first steps from one seed, as exact hexadecimal floats; the training goes on afterwards.

    With them, sums over the user's moving average after those steps, so that a patch of it is checked too.

    build_seed: build the training again from this seed first. run: tells apart questions that are the same. rounded: compute as
    in this type, one way for each run (see `measure.rounding`). asked: the rest, see `of_script.Request`.
    """
    holder.doing = "the first steps"
    request = of_script.Request(**asked)
    if holder.training.is_script:
        if build_seed is not None:
            raise TargetError("a script draws from the seed that it sets itself")
        with _in_type(rounded, run):
            return of_script.first_losses(holder.training, request)
    if build_seed is not None:
        holder.training.close()
        if holder.training.folder:  # its factories begin where they did the first time
            os.chdir(holder.training.folder)
        holder.training = FactoryTraining(holder.training.target, str(holder.training.device), seed=build_seed)
    return _of_factories(holder.training, request, _in_type(rounded, run))


def _of_factories(
    training: FactoryTraining, asked: of_script.Request, in_type: contextlib.AbstractContextManager[None]
) -> Reply:
    import torch

    if asked.save_state:
        torch.save(training.model.state_dict(), asked.save_state)
    why = take_parameters(training.model, asked.load_state) if asked.load_state else ""
    if asked.nudge:
        nudge_parameters(training.model, asked.nudge)
    losses: list[str] = []
    found: Reply = {}
    batch: Any = None

    def look() -> None:
        if asked.save_gradients:
            gradients.save(training, batch, asked.save_gradients)
        if asked.load_gradients:
            found["gradients"] = gradients.compare_with_file(
                training, batch, asked.load_gradients, may_lack=asked.may_lack
            )

    seed_all(asked.seed)
    with (
        autocasts() if asked.observe else contextlib.nullcontext(set[str]()) as dtypes,
        gradients.after_first_backward(training, look),
        in_type,
    ):
        for _ in range(asked.steps):
            batch = training.to_device(training.next_batch())
            losses.append(float(training.step(batch).detach()).hex())
    average = [value.hex() for value in training.average_sums()]
    if asked.memory:
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
