"""Computing with every float a double: a mode for what runs, and models whose parameters are doubles for a while. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from perfaudit.target.accelerator import accelerator_of
from perfaudit.training.parameters import nudge as move

_WRITES = {"__set__", "__delete__", "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}
_DRAW_LIKE = {"rand_like", "randn_like"}  # in doubles they would draw other numbers


class NotInDoubles(Exception):
    """A training that cannot be made in double precision, and why."""


@contextlib.contextmanager
def everything_double(draws_as_before: bool = False) -> Iterator[None]:
    """Inside, floats are doubles: new tensors, those that are cast to another float, and operands that are none yet.

    draws_as_before: new tensors have the types that are asked for, so that what is drawn by chance is what it was, and become
    doubles where they meet others. Compiled functions run as they are written. Raises NotInDoubles where this torch cannot do
    that.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves, tree_map

    floats = {torch.float32, torch.float16, torch.bfloat16}
    casts = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}

    def doubled(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.double() if value.dtype in floats and not value.is_sparse else value
        return torch.float64 if isinstance(value, torch.dtype) and value in floats else value

    class Doubles(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            kwargs = kwargs or {}
            if draws_as_before and name in _DRAW_LIKE:
                return function(*args, **{"dtype": torch.float32, **kwargs})
            if draws_as_before and not any(isinstance(each, torch.Tensor) for each in tree_leaves((args, kwargs))):
                return function(*args, **kwargs)
            if function in casts:
                function = torch.Tensor.double
            if not (name in _WRITES or "out" in kwargs or (name.endswith("_") and not name.endswith("__"))):
                args, kwargs = tree_map(doubled, (args, kwargs))
            return function(*args, **kwargs)

    stance = getattr(torch.compiler, "set_stance", None)
    if stance is None:
        raise NotInDoubles("this torch cannot run compiled code as it is written (2.6 can)")
    default = torch.get_default_dtype()
    if not draws_as_before:
        torch.set_default_dtype(torch.float64)
    try:
        with Doubles(), stance("force_eager"):
            yield
    finally:
        torch.set_default_dtype(default)


@contextlib.contextmanager
def models_in_doubles(models: Sequence[Any], nudge: float = 0.0) -> Iterator[None]:
    """Inside, what these models compute is computed in doubles, from parameters moved by the share `nudge`; all else draws what
    it drew. Behind it parameters, gradients and buffers have the types that they had.

    Raises NotInDoubles.
    """
    import torch

    tensors = {id(each): each for model in models for each in (*model.parameters(), *model.buffers())}
    if any(each.is_complex() for each in tensors.values()):
        raise NotInDoubles("it has complex parameters")
    for device in {each.device for each in tensors.values()}:
        if not accelerator_of(device).has_doubles:
            raise NotInDoubles(f"{device.type} has no float64")
    types = [(each, each.dtype) for each in tensors.values() if each.is_floating_point()]
    for each, _ in types:
        each.data = each.data.double()
    if nudge:
        for model in models:
            move(model, nudge)
    try:
        with everything_double(draws_as_before=True):
            yield
    finally:
        for each, dtype in types:
            gradient, each.grad = each.grad, None
            each.data = each.data.to(dtype)
            if isinstance(gradient, torch.Tensor):
                each.grad = gradient.to(dtype)
