"""Which types and memory layouts flow through a model. Child only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from perfaudit.target.observed.same_state import same_model_state, without_compilation

Shares = dict[str, float]


def flowing(model: Any, run: Callable[[], object]) -> tuple[Shares, Shares]:  # Any: torch.nn.Module
    """Shares of the elements that modules put out, by type ("float32") and, for floating ones, by memory layout.

    run: one forward pass of the training. Outputs are those of modules without modules inside, of the model itself where
    none of these was called. Layouts are "contiguous", "channels_last" (of four or five dimensions, where it differs from
    contiguous), "strided" and "sparse". Both are empty for a model that puts out no tensor.
    """
    outputs = _Counts()
    with ExitStack() as hooks, same_model_state(model), without_compilation(model):
        for module in model.modules():
            if module is model or not any(True for _ in module.children()):
                count = outputs.whole if module is model else outputs.part
                hooks.callback(module.register_forward_hook(count).remove)
        run()
    return outputs.shares()


class _Counts:
    """Elements by type and layout: of parts, and of the whole model."""

    def __init__(self) -> None:
        self._parts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self._whole: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def part(self, module: Any, given: object, result: object) -> None:
        _count(result, *self._parts)

    def whole(self, module: Any, given: object, result: object) -> None:
        _count(result, *self._whole)

    def shares(self) -> tuple[Shares, Shares]:
        dtypes, layouts = self._parts if self._parts[0] else self._whole
        return _shares(dtypes), _shares(layouts)


def _count(result: object, dtypes: Counter[str], layouts: Counter[str]) -> None:
    import torch
    from torch.utils._pytree import tree_leaves

    for value in tree_leaves(result):
        if isinstance(value, torch.Tensor):
            dtypes[str(value.dtype).removeprefix("torch.")] += value.numel()
            if value.is_floating_point():
                layouts[_layout(value)] += value.numel()


def _layout(tensor: Any) -> str:
    import torch

    if tensor.layout is not torch.strided:
        return "sparse"
    if tensor.is_contiguous():
        return "contiguous"
    by_dimensions = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = by_dimensions.get(tensor.ndim)
    return "channels_last" if wanted and tensor.is_contiguous(memory_format=wanted) else "strided"


def _shares(counts: Counter[str]) -> Shares:
    total = sum(counts.values())
    return {name: count / total for name, count in counts.most_common()} if total else {}
