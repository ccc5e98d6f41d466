"""Which dimension of what a model is called with is that of the samples, as its layers for sequences tell. Child only.

Such layers take the time before the samples unless they are told otherwise. Whoever has not told them may have meant it, or
have forgotten it; so something else must say the same, such as an initial state or a mask, which fit one reading only.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from perfaudit.script.samples import attribute_of, first_tensor

FIRST, SECOND = 0, 1
UNCLEAR = -1
MOST_LOOKS = 4  # at calls that told nothing, as the length of a sequence may be the number of samples by chance


class BatchAxes:
    """Looks at the first calls of a model, until one has told something; what it has told holds for all later ones."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._looks: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def of(self, model: Any) -> int:
        """FIRST or SECOND; UNCLEAR where a layer for sequences may have been told the wrong one."""
        try:
            return self._known.get(model, FIRST)
        except TypeError:  # it has no hash
            return FIRST

    def is_new(self, model: Any) -> bool:
        """Whether a call of this model is to be looked at."""
        try:
            return model not in self._known
        except TypeError:
            return False

    @contextlib.contextmanager
    def look_during(self, model: Any, given: list[Any]) -> Iterator[None]:
        """Look at what layers tell while a new model is called. given: what it is called with."""
        layers = _layers(model)
        told: list[int] = []
        shape = attribute_of(first_tensor(given, dimensions=2), "shape")
        hooks = [each.register_forward_pre_hook(_hook(shape, told), with_kwargs=True) for each in layers if shape]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        looks = self._looks[model] = self._looks.get(model, 0) + 1
        if told or looks == MOST_LOOKS or not layers:
            self._known[model] = _common(told)


def _common(told: list[int]) -> int:
    """What layers have told that agree; FIRST where none has told anything."""
    sure = {each for each in told if each != UNCLEAR}
    if len(sure) == 1:
        return sure.pop()
    return UNCLEAR if told else FIRST


def _layers(model: Any) -> list[Any]:
    nn = sys.modules["torch"].nn
    if type(model).__name__ == "OptimizedModule":  # a hook of ours would have it compiled anew
        return []
    return [each for each in model.modules() if isinstance(each, (nn.RNNBase, nn.MultiheadAttention))]


def _hook(shape: Any, told: list[int]) -> Any:
    """shape: of what the model is called with."""

    def look(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # objects of the script's own, which tell nothing then
            samples, is_sure = _samples_of(layer, args, kwargs)
            if samples in tuple(shape[:2]) and shape[0] != shape[1]:
                axis = FIRST if samples == shape[0] else SECOND
                # Samples first is what is usual: a model that puts the time before them for its layers knows what it does.
                told.append(axis if is_sure or axis == FIRST else UNCLEAR)

    return look


def _samples_of(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, bool]:
    """How many samples a layer is called with, and whether more than its default says so; 0 where it does not tell."""
    given = [*args, *kwargs.values()]
    sizes = getattr(given[0], "batch_sizes", None) if given else None
    if sizes is not None:  # packed, with a length for each sample
        return int(sizes[0]), True
    if not given or len(getattr(given[0], "shape", ())) != 3:
        return 0, False
    if layer.batch_first:
        return int(given[0].shape[0]), True
    names = ("key_padding_mask", "attn_mask") if hasattr(layer, "num_heads") else ("hx",)
    positions = (3, 5) if hasattr(layer, "num_heads") else (1,)
    fits = [kwargs.get(name, args[at] if at < len(args) else None) for name, at in zip(names, positions, strict=True)]
    return int(given[0].shape[1]), any(each is not None for each in fits)
