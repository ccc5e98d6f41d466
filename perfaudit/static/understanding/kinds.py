"""Where values lie, host or device, and what joins and operators make of them."""

from __future__ import annotations

import enum
from typing import TypeAlias


class Kind(enum.IntEnum):
    """Where a value lies, as far as the text tells."""

    HOST = 0  # a Python value, or a tensor in host memory
    UNKNOWN = 1
    MAYBE = 2  # made from device tensors by code that is not read here: one of them, or something that holds them
    TENSOR = 3


Value: TypeAlias = "Kind | tuple[Value, ...]"  # a tuple where each element of a tuple or list is known


def whole(value: Value) -> Kind:
    """The kind of a value taken as one thing: a tuple that holds tensors is no tensor."""
    if isinstance(value, tuple):
        return holder_kind(max((whole(item) for item in value), default=Kind.HOST))
    return value


def holder_kind(kind: Kind) -> Kind:
    """The kind of something that holds a value of this kind."""
    return min(kind, Kind.MAYBE)


def element_of(value: Value) -> Value:
    """The kind of one element of a value."""
    return all_joined(list(value)) if isinstance(value, tuple) else value


def join_values(first: Value, second: Value) -> Value:
    """What a name is after two branches."""
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        return tuple(join_values(a, b) for a, b in zip(first, second, strict=True))
    a, b = whole(first), whole(second)
    if a is b:
        return a
    return Kind.MAYBE if max(a, b) >= Kind.MAYBE else Kind.UNKNOWN


def all_joined(values: list[Value]) -> Value:
    result: Value = values[0] if values else Kind.HOST
    for value in values[1:]:
        result = join_values(result, value)
    return result


def arithmetic(first: Value, second: Value) -> Kind:
    """The kind of a sum, product or comparison: a tensor if one side is one."""
    return max(whole(first), whole(second))


def all_arithmetic(values: list[Value]) -> Kind:
    return max((whole(value) for value in values), default=Kind.HOST)
