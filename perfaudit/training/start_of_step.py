"""What the next step of a training starts from: its numbers, and what is around them. Child only."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Any

Around = dict[str, object]  # by name of a part, what is to be as it was after a patch was taken back


class Numbers:
    """Parameters, buffers and the optimizer's tensors as they were, in host memory."""

    def __init__(self, training: Any) -> None:
        self._kept = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in _tensors(training)]

    def put_back(self) -> None:
        """Write them into the tensors that they came from; variants that hold these see them too."""
        import torch

        with torch.no_grad():
            for tensor, before in self._kept:
                tensor.copy_(before)


def bytes_of(training: Any) -> int:
    """Bytes that the numbers of a training take."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(training))


def around(training: Any) -> Around:
    """Everything but numbers: parameters and buffers by type and shape, modes, attributes and hooks of modules, and
    what the optimizer keeps of which parameter. Attributes count by their type.
    """
    found: Around = {}
    for name, module in training.model.named_modules():
        at = f"the module {name}" if name else "the model"
        found[f"{at}, its mode"] = module.training
        for key, value in vars(module).items():
            if key.startswith("_") and isinstance(value, dict) and "hooks" in key:
                found[f"{at}, {key}"] = len(value)
            elif not key.startswith("_"):
                found[f"{at}, its attribute {key}"] = _kind(value)
        found |= {
            f"{at}, its {key}": _kind(value) for key, value in (*module._parameters.items(), *module._buffers.items())
        }
    groups = [group for optimizer in training.optimizers for group in optimizer.param_groups]
    for index, group in enumerate(groups):
        of_group = {key: value for key, value in group.items() if key != "params" and not isinstance(value, float)}
        found[f"group {index} of the optimizer"] = (len(group["params"]), copy.copy(of_group))
    for number, state in enumerate(state for optimizer in training.optimizers for state in optimizer.state.values()):
        found[f"what the optimizer keeps of parameter {number}"] = (
            {key: _kind(value) for key, value in state.items()} if isinstance(state, dict) else _kind(state)
        )
    return found


def differences(before: Around, after: Around) -> list[str]:
    """Names of what differs, in order; attributes that are new are none, for nobody else reads them."""
    is_new_attribute = {name for name in after if name not in before and ", its attribute " in name}
    return [
        name for name in {**before, **after} if before.get(name) != after.get(name) and name not in is_new_attribute
    ]


def _tensors(training: Any) -> Iterator[Any]:
    yield from (*training.model.parameters(), *training.model.buffers())
    for optimizer in training.optimizers:
        yield from _inside(optimizer.state.values())


def _inside(values: Iterable[Any]) -> Iterator[Any]:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            yield from _inside(value.values())


def _kind(value: Any) -> object:
    """A tensor by what it is and where it lies, anything else by its type."""
    import torch

    if isinstance(value, torch.Tensor):
        return (type(value), id(value) if isinstance(value, torch.nn.Parameter) else 0, value.dtype, value.shape,
                value.device, value.requires_grad)  # fmt: skip
    return type(value)


def is_finite(loss: Any) -> bool:
    """Whether a loss is a number; none at all is no fault."""
    return loss is None or math.isfinite(float(loss))
