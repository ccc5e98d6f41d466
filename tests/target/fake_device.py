"""A device that is not there: its tensors hold their values on the host, and say that they are on "meta"."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

DEVICE = torch.device("meta")  # the only type beside "cpu" that autograd accepts on every machine


class Elsewhere(torch.Tensor):
    """A tensor on the device; `values` has what is in it."""

    values: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> Elsewhere:
        if values.dtype == torch.float64:
            raise TypeError("the device has no float64")  # nor has MPS
        one: Elsewhere = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]  # torch's
            cls, values.shape, strides=values.stride(), dtype=values.dtype, device=DEVICE
        )
        one.values = values
        return one

    def __repr__(self, **_: Any) -> str:
        return f"Elsewhere({self.values!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class FakeDevice(TorchFunctionMode):
    """Inside, functions know the device: they make tensors on it and move them there, which this torch would refuse."""

    def __enter__(self) -> FakeDevice:
        torch.__future__.set_overwrite_module_params_on_conversion(True)  # `.data` of a parameter keeps its type
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.__future__.set_overwrite_module_params_on_conversion(False)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.device, torch._C._nn._parse_to):  # the latter reads the arguments of `Module.to`
            return func(*args, **(kwargs or {}))
        asked: list[Any] = []

        def on_host(value: Any) -> Any:
            device = torch.device(value) if isinstance(value, str) and value.partition(":")[0] == DEVICE.type else value
            if isinstance(device, torch.device) and device.type == DEVICE.type:
                asked.append(device)
                return torch.device("cpu")
            return value

        args = tuple(map(on_host, args))
        kwargs = {name: on_host(value) for name, value in (kwargs or {}).items()}
        if not asked:
            return func(*args, **kwargs)
        if args and isinstance(args[0], Elsewhere):  # is there already
            return func(args[0], *[a for a in args[1:] if not isinstance(a, torch.device)])
        result = func(*args, **kwargs)
        return Elsewhere(result.detach()) if isinstance(result, torch.Tensor) else result


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    given: list[torch.Tensor] = []
    tree_map_only(torch.Tensor, given.append, (args, kwargs))
    there = any(isinstance(tensor, Elsewhere) for tensor in given)
    asked = kwargs.get("device")
    if func.overloadpacket not in (torch.ops.aten.copy_, torch.ops.aten._to_copy):
        alone = [t for t in given if not isinstance(t, Elsewhere) and t.dim()]
        if there and alone:
            raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices")
    if asked is not None:
        there = asked.type == DEVICE.type
        kwargs = {**kwargs, "device": torch.device("cpu")}
    elif func.overloadpacket is torch.ops.aten.copy_:
        there = isinstance(args[0], Elsewhere)
    plain_args, plain = tree_map_only(Elsewhere, lambda tensor: tensor.values, (args, kwargs))
    result = func(*plain_args, **plain)
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, Elsewhere):
            return value if len(func._schema.returns) == 1 and not isinstance(result, (list, tuple)) else result
    return tree_map_only(torch.Tensor, Elsewhere, result) if there else result
