"""The order in memory of what a model holds, changed in place and changed back. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


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
