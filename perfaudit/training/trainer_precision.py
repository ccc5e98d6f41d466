"""A trainer that runs computes in bfloat16, as if it had been given the argument for it. Child only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import MethodType
from typing import Any

from perfaudit.training.code_change import NotSwappable
from perfaudit.training.trainers import LIGHTNING, Trainer


def computing_in_bf16(trainer: Trainer, device: str) -> contextlib.AbstractContextManager[None]:
    """Inside, the steps of a trainer that computes in float32 are those of `precision="bf16-mixed"`, `bf16=True` or the like.

    device: its type. Raises NotSwappable when entered, for a trainer that is put together otherwise than those of the library.
    """
    return (
        _in_lightning(trainer.its, device)
        if trainer.library == LIGHTNING
        else _in_accelerate(trainer.accelerator, device)
    )


@contextlib.contextmanager
def _in_lightning(its: Any, device: str) -> Iterator[None]:
    """With another precision plugin, which Lightning asks for the context of each step."""
    before = its.strategy.precision_plugin
    root, _, rest = type(before).__module__.partition(".plugins.precision.")
    if rest != "precision" or type(before).__name__ != "Precision":
        raise NotSwappable(f"the trainer computes by {type(before).__name__}")
    plugins: Any = sys.modules[f"{root}.plugins.precision.amp"]
    its.strategy.precision_plugin = plugins.MixedPrecision("bf16-mixed", device if device in ("cpu", "mps") else "cuda")
    try:
        yield
    finally:
        its.strategy.precision_plugin = before


@contextlib.contextmanager
def _in_accelerate(accelerator: Any, device: str) -> Iterator[None]:
    """With the forward passes of prepared models wrapped as `Accelerator.prepare_model` wraps them."""
    import torch

    models = list(getattr(accelerator, "_models", ()))
    if not models:
        raise NotSwappable("the Accelerator has prepared no model")
    operations: Any = sys.modules["accelerate.utils.operations"]
    before = accelerator.native_amp, accelerator.state._mixed_precision
    with contextlib.ExitStack() as put_back:
        for model in models:
            function = getattr(model.forward, "__func__", None)
            if function is None or "forward" in vars(model):
                raise NotSwappable(f"the forward pass of {type(model).__name__} is wrapped by something else")
            computed = torch.autocast(device, dtype=torch.bfloat16)(function)
            vars(model)["forward"] = MethodType(operations.convert_outputs_to_fp32(computed), model)
            put_back.callback(vars(model).pop, "forward", None)
        accelerator.native_amp, accelerator.state._mixed_precision = True, "bf16"
        put_back.callback(_tell, accelerator, *before)
        yield


def _tell(accelerator: Any, native_amp: bool, mixed_precision: str) -> None:
    """What `Accelerator.autocast` and `Accelerator.mixed_precision` go by."""
    accelerator.native_amp, accelerator.state._mixed_precision = native_amp, mixed_precision
