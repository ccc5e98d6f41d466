"""Compute as a coarser type would: operands of matmuls and convolutions rounded to its bits, up or down by chance. Child only.

It shows what a type does to one training without a device that has it. Rounding by chance goes at most one unit and on average
√2 times as far as rounding to nearest, and another draw is another set of roundings, as another algorithm makes. What has 16 bits
already is moved by one unit or not at all, which is what another order of sums does to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from perfaudit.script.after_import import after_import

# Bits of the mantissa that are kept of float32's 23; the types of 16 bits also put out what they compute.
BITS = {"tf32": 10, "float16": 10, "bfloat16": 7}
PUTS_OUT = {"float16", "bfloat16"}
_ODD = (40_503, -1_640_531_535, -2_048_144_777)  # of a golden ratio and a hash: their products spread over 32 bits

_ROUNDED = {
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "convolution", "convolution_backward",
    "_convolution", "convolution_overrideable", "convolution_backward_overrideable", "cudnn_convolution",
    "mkldnn_rnn_layer", "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward",
}  # fmt: skip


@contextlib.contextmanager
def rounded_from_torch_on(kind: str, draw: int) -> Iterator[None]:
    """The same as `rounded_to`, from when torch is imported, which is left to whoever imports it."""
    with contextlib.ExitStack() as inside:
        after_import("torch", lambda: inside.enter_context(rounded_to(kind, draw)))
        yield


@contextlib.contextmanager
def rounded_to(kind: str, draw: int = 0) -> Iterator[None]:
    """Inside, matmuls and convolutions of float32 round to this type ("tf32", "float16", "bfloat16"); one way for each draw.

    The user's random streams are left alone.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map

    lost = 23 - BITS[kind]
    halves = (torch.bfloat16, torch.float16)

    def by_chance(bits: Any) -> Any:
        """Numbers that follow from these bits and the draw, and look as if thrown: a hash, far cheaper than dice."""
        mixed = (bits + (draw + 1) * _ODD[0]) * _ODD[1]
        return (mixed ^ (mixed >> 15)) * _ODD[2]

    def round_by_chance(value: Any) -> Any:
        if (
            not isinstance(value, torch.Tensor)
            or value.layout != torch.strided
            or value.dtype not in (torch.float32, *halves)
        ):
            return value
        if value.dtype in halves:
            bits = value.view(torch.int16)
            step = (by_chance(bits.int()) >> 16).remainder(3).to(torch.int16) - 1
            found = (bits + step).view(value.dtype)
            return torch.where(value.isfinite() & found.isfinite() & (value != 0), found, value)
        bits = value.view(torch.int32)
        more = (by_chance(bits) >> (32 - lost)) & (2**lost - 1)
        found = ((bits + more) & -(2**lost)).view(torch.float32)  # in the layout that it had
        return torch.where(value.isfinite() & found.isfinite(), found, value)

    class Rounded(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function._schema.name.removeprefix("aten::") not in _ROUNDED:
                return function(*args, **(kwargs or {}))
            args, kwargs = tree_map(round_by_chance, (args, kwargs or {}))
            found = function(*args, **kwargs)
            return tree_map(round_by_chance, found) if kind in PUTS_OUT else found

    with Rounded():  # type: ignore[no-untyped-call]  # torch's
        yield
