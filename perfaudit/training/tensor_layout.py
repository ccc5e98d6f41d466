"""The order in memory of what a model holds, changed in place and changed back. Child only."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from perfaudit.script.replaced_functions import Function, put_back, replace
from perfaudit.training.code_change import NotSwappable

NOT_COMPATIBLE = (
    "view size is not compatible"  # how torch says that a tensor does not lie so that it can be seen in that shape
)


@contextlib.contextmanager
def memory_format(training: Any, name: str) -> Iterator[None]:
    """Inside, the model's tensors of four or five dimensions lie in this format of torch ("channels_last"), as
    `model.to(memory_format=...)` leaves them; what the optimizer keeps of them, and their gradients, lie as they do.

    Afterwards each has the strides that it had, and the values that it has become.
    """
    import torch

    before = {}
    for tensor in _tensors(training):
        before[id(tensor)] = tensor, tensor.data.size(), tensor.data.stride()
    training.model.to(memory_format=getattr(torch, name))
    _follow(training)
    try:
        yield
    finally:
        for tensor, size, stride in before.values():
            if tensor.data.stride() != stride and tensor.data.size() == size:
                kept = torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)
                tensor.data = kept.copy_(tensor.data)
        _follow(training)


class LostWrite(NotSwappable):
    """What a step wrote into a copy in place of a view is missing where it belongs: the training is not what it was."""


@contextlib.contextmanager
def copies_for_views() -> Iterator[None]:
    """Inside, `view` copies a tensor that does not lie as it wants; behind it the error is raised that the first of these was.

    So a step with another layout comes to its end, in a script that would be over with the error. Raises LostWrite where
    something was written into such a copy.
    """
    import torch

    refused: list[RuntimeError] = []
    copies: list[tuple[Any, int]] = []  # with their versions, which count what is written

    def copying(view: Function) -> Function:
        def ours(tensor: Any, *shape: Any, **named: Any) -> Any:
            try:
                return view(tensor, *shape, **named)
            except RuntimeError as error:
                if NOT_COMPATIBLE not in str(error):
                    raise
                refused.append(error.with_traceback(_stack(sys._getframe(1), error.__traceback__)))
            copy = tensor.reshape(*(shape or named.values()))
            if not copy.is_inference():
                copies.append((copy, copy._version))
            return copy

        return ours

    ours = replace(torch.Tensor, "view", copying)
    try:
        yield
    finally:
        put_back(torch.Tensor, "view", ours)
    if any(copy._version != version for copy, version in copies):
        raise LostWrite(f"a step writes through a `view`, which this layout breaks: {refused[0]}") from refused[0]
    if refused:
        raise refused[0]


def _stack(frame: types.FrameType | None, below: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback of an error that leaves all these frames."""
    while frame is not None:
        below = types.TracebackType(below, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return below


def _tensors(training: Any) -> Iterator[Any]:
    yield from training.model.parameters()
    yield from training.model.buffers()


def _follow(training: Any) -> None:
    """Lay what belongs to each parameter as the parameter lies: an update of mixed strides takes another path.

    What the optimizer keeps stays the same tensors: others may hold them too.
    """
    import torch

    for parameter in training.model.parameters():
        for value in training.optimizer.state.get(parameter, {}).values():
            if isinstance(value, torch.Tensor) and value.size() == parameter.size():
                value.data = _laid_as(parameter, value)
        if parameter.grad is not None:
            parameter.grad = _laid_as(parameter, parameter.grad)


def _laid_as(parameter: Any, value: Any) -> Any:
    import torch

    if value.stride() == parameter.stride():
        return value
    laid = torch.empty_strided(parameter.size(), parameter.stride(), dtype=value.dtype, device=value.device)
    return laid.copy_(value)
