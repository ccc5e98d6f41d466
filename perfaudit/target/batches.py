"""Batches, whatever a user's loader makes them of: what they hold, and copies of them with other tensors. Child only.

Containers are treated as `torch.utils.data` treats them when it pins: methods of the object's own first, mappings, named
tuples, tuples and sequences rebuilt as their own type, text untouched. `torch.utils._pytree` serves for the arguments of
operators, but not here: it knows types by registration and takes every other mapping, sequence or dataclass for a leaf.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Change = Callable[[Any], Any]  # of a tensor: the one in its place

_CLOSED = (
    str, bytes, bytearray, memoryview, range, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType,
    types.MethodType,
)  # fmt: skip  # nothing in them is a part of a batch


def leaves_in(batch: Any) -> Iterator[Any]:
    """What a batch holds that holds nothing itself, tensors and all else, in order."""
    yield from _leaves(batch, ())


def tensors_in(batch: Any) -> Iterator[Any]:
    """The tensors of a batch, in order."""
    import torch

    return (leaf for leaf in leaves_in(batch) if isinstance(leaf, torch.Tensor))


def samples_in(batch: Any) -> int:
    """Number of samples of a batch: the first dimension of the first tensor that has one (1 if there is none)."""
    return next(_counts(batch, ()), 1)


def parts_of(value: Any, of_objects: bool = True) -> list[tuple[Any, Any]] | None:
    """The parts of a container, each with its key, number or name; None for what is none.

    of_objects: whether attributes of objects that are neither mapping, sequence nor dataclass are parts too.
    """
    import torch

    if isinstance(value, (torch.Tensor, *_CLOSED)):
        return None
    if isinstance(value, Mapping):
        return [(key, value[key]) for key in value]
    if isinstance(value, Sequence):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if hasattr(value, f.name)]
    if of_objects and (attributes := getattr(value, "__dict__", None)) is not None:
        return list(attributes.items())
    return None


def with_tensors(batch: Any, change: Change) -> Any:
    """The batch with `change(tensor)` in the place of each tensor; what holds it is of its own type, all else the same."""
    return _rebuilt(batch, change, lambda value: None)


def on_device(batch: Any, device: Any, non_blocking: bool) -> tuple[Any, frozenset[str]]:
    """The batch on a device, and the types of what was left where it is: objects with tensors that have no way to move.

    An object moves by its own `to(device)`. One without, which has a `pin_memory()`, is of the kind that torch's documentation
    shows: its attributes move. Another object is left to the user's step, which may move what it takes from it.
    non_blocking: whether the host goes on before a copy is done; an object's own `to` is told where it takes the word.
    """
    left: set[str] = set()

    def own_way(value: Any) -> Any:
        if callable(move := getattr(value, "to", None)):
            return _moved_by_itself(value, move, device, non_blocking)
        if parts_of(value, of_objects=False) is not None or hasattr(value, "pin_memory"):
            return None  # by its parts
        if any(tensor.device.type != device.type for tensor in tensors_in(value)):
            left.add(type(value).__name__)
        return value

    moved = _rebuilt(batch, lambda tensor: tensor.to(device, non_blocking=non_blocking), own_way)
    return moved, frozenset(left)


def _moved_by_itself(value: Any, move: Any, device: Any, non_blocking: bool) -> Any:
    try:
        takes = inspect.signature(move).parameters.values()
        told = any(p.name == "non_blocking" or p.kind is p.VAR_KEYWORD for p in takes)
    except (TypeError, ValueError):
        told = False
    moved = move(device, non_blocking=True) if non_blocking and told else move(device)
    return value if moved is None else moved  # one that changes itself may return nothing


def _leaves(value: Any, around: tuple[int, ...]) -> Iterator[Any]:
    parts = parts_of(value)
    if parts is None:
        yield value
    elif id(value) not in around:  # an object may lead back to itself
        for _, part in parts:
            yield from _leaves(part, (*around, id(value)))


def _counts(value: Any, around: tuple[int, ...]) -> Iterator[int]:
    import torch

    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        yield int(value.batch_sizes[0])
    elif isinstance(value, torch.Tensor):
        if value.dim():
            yield int(value.size(0))
    elif id(value) not in around:
        for _, part in parts_of(value) or ():
            yield from _counts(part, (*around, id(value)))


def _rebuilt(value: Any, change: Change, own_way: Callable[[Any], Any], around: tuple[int, ...] = ()) -> Any:
    """own_way: asked first of everything that is no tensor; what it returns stands, None leaves it to the rules here."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, _CLOSED) or id(value) in around:
        return value
    own = own_way(value)
    if own is not None:
        return own
    parts = parts_of(value)
    if parts is None:
        return value
    again = functools.partial(_rebuilt, change=change, own_way=own_way, around=(*around, id(value)))
    new = [(key, again(part)) for key, part in parts]
    if all(part is before for (_, part), (_, before) in zip(new, parts, strict=True)):
        return value  # nothing in it changes, whatever it takes to build one
    if isinstance(value, Mapping):
        return _mapping(value, dict(new))
    if isinstance(value, tuple):
        return _tuple(value, [part for _, part in new])
    if isinstance(value, Sequence):
        return _sequence(value, [part for _, part in new])
    other = copy.copy(value)
    for name, part in new:
        object.__setattr__(other, name, part)  # of a frozen dataclass too
    return other


def _mapping(value: Any, items: dict[Any, Any]) -> Any:
    """A copy of a mapping with these items, a dict where it cannot be had."""
    before = dict(value)
    try:
        other = copy.copy(value)
        for key, item in items.items():
            other[key] = item
    except Exception:  # the user's own class, which may allow no assignment, and say so in its own way
        try:
            return type(value)(items)
        except Exception:
            return items
    if any(value[key] is not item for key, item in before.items()):  # the copy shares what it stores with the original
        for key, item in before.items():
            value[key] = item
        return items
    return other


def _tuple(value: Any, items: list[Any]) -> Any:
    try:
        return type(value)._make(items) if hasattr(value, "_fields") else type(value)(items)
    except TypeError:
        return tuple(items)


def _sequence(value: Any, items: list[Any]) -> Any:
    """A copy of a sequence with these items, a list where it cannot be had."""
    before = list(value)
    try:
        other = copy.copy(value)
        for number, item in enumerate(items):
            other[number] = item
    except Exception:  # the user's own class
        try:
            return type(value)(items)
        except Exception:
            return items
    if any(item is not again for item, again in zip(before, value, strict=True)):
        for number, item in enumerate(before):
            value[number] = item
        return items
    return other
