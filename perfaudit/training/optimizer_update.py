"""How an optimizer that exists runs its update: one parameter after the other, over lists (foreach), or fused. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_ABSENT = object()
# Attributes of its own that an optimizer has while its update is fused, or from its first fused step on (torch/optim/sgd.py).
_OF_FUSED = ("_step_supports_amp_scaling", "_need_device_dtype_check_for_fused")


@contextlib.contextmanager
def update_with(optimizer: Any, foreach: bool, fused: bool) -> Iterator[None]:
    """Inside, a torch optimizer updates as if it had been built with these arguments; its state stays what it has become.

    What `__init__` does beside keeping them is done too: the counter of steps lies on the parameters' device while the update
    is fused, and on the host otherwise (torch/optim/adam.py), and loss scales may be handled by the kernel.
    """
    before = [{name: group.get(name, _ABSENT) for name in ("foreach", "fused")} for group in optimizer.param_groups]
    own = {name: vars(optimizer).get(name, _ABSENT) for name in _OF_FUSED}
    for group in optimizer.param_groups:
        group.update({name: value for name, value in (("foreach", foreach), ("fused", fused)) if name in group})
    moved = _counters_where_they_belong(optimizer, fused)
    if fused:
        optimizer._step_supports_amp_scaling = True
    elif own["_step_supports_amp_scaling"] is not _ABSENT:
        del optimizer._step_supports_amp_scaling
    try:
        yield
    finally:
        for group, values in zip(optimizer.param_groups, before, strict=True):
            for name, value in values.items():
                if value is _ABSENT:
                    group.pop(name, None)
                else:
                    group[name] = value
        for name, value in own.items():
            if value is not _ABSENT:
                setattr(optimizer, name, value)
            else:
                vars(optimizer).pop(name, None)
        for counter, device in moved:
            counter.data = counter.to(device)


def _counters_where_they_belong(optimizer: Any, fused: bool) -> list[tuple[Any, Any]]:
    """Move counters of steps, which stay the same tensors; those that were moved, each with the device it came from."""
    moved = []
    for group in optimizer.param_groups:
        if group.get("capturable"):
            continue
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            counter: Any = state.get("step") if state else None
            device = parameter.device if fused else "cpu"
            if hasattr(counter, "device") and counter.device.type != getattr(device, "type", device):
                moved.append((counter, counter.device))
                counter.data = counter.to(device)
    return moved
