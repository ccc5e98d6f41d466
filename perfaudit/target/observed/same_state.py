"""Running a piece of training and leaving no trace of it: buffers, gradients and random streams as they were. Child only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perfaudit.target.random_streams import same_random_streams


class Unobservable(Exception):
    """A training that cannot be watched; the message says why, in one line."""


@contextmanager
def without_compilation(model: Any) -> Iterator[None]:  # Any: torch.nn.Module
    """Compiled functions run as they are written, as hooks and modes see nothing of compiled code.

    Raises Unobservable for a compiled model where this torch cannot do that.
    """
    import torch

    stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    if stance is None:
        if any(
            type(m).__name__ == "OptimizedModule" or getattr(m, "_compiled_call_impl", None) for m in model.modules()
        ):
            raise Unobservable(f"the model is compiled, and torch {torch.__version__} cannot run it uncompiled")
        yield
        return
    with stance("force_eager"):
        yield


@contextmanager
def same_model_state(model: Any) -> Iterator[None]:  # Any: torch.nn.Module
    """Afterwards the model's buffers and gradients and all random streams are what they were before.

    Gradients are None inside. Parameters are the caller's care: a forward and a backward do not change them.
    """
    buffers = _buffers(model)
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with same_random_streams():
            yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        _put_back(buffers)


def _buffers(model: Any) -> list[tuple[Any, str, Any, Any]]:
    """Module, name, tensor and a copy of its values, for each buffer that has values yet."""
    from torch.nn.parameter import is_lazy

    return [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and not is_lazy(buffer)
    ]


def _put_back(buffers: list[tuple[Any, str, Any, Any]]) -> None:
    import torch

    with torch.no_grad():
        for module, name, buffer, values in buffers:
            buffer.copy_(values)
            module._buffers[name] = buffer
