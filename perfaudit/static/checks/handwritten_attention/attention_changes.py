"""What a function or method of torch makes of scores and weights."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from perfaudit.static.checks.handwritten_attention.attention_axes import letters, pattern_axes, width_in_pattern
from perfaudit.static.checks.handwritten_attention.attention_steps import (
    RESHAPES,
    SAME,
    TURNS,
    give_up,
    reshape_leading_axes,
    turned_weights,
)
from perfaudit.static.checks.handwritten_attention.attention_values import (
    PLAIN,
    Operand,
    Peak,
    Scores,
    Value,
    Weights,
    chains,
    want,
)
from perfaudit.static.source import Source
from perfaudit.static.understanding.values import Known, argument, constant

if TYPE_CHECKING:
    from perfaudit.static.checks.handwritten_attention.attention_reader import Reader

_ASKING = {"size", "dim", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty", "stride", "element_size"}


def drop_out(reader: Reader, node: ast.expr) -> Value:
    """Weights after a dropout are weights; scores dropped out are no attention that the library has."""
    value = reader.value(node)
    if isinstance(value, (Weights, Operand)):
        for chain in chains(value):
            chain.has_dropout = True
        return value
    want(value)
    return PLAIN


def keep_in_place(reader: Reader, func: ast.Attribute, value: Value) -> Value:
    """A method that works in place changes the name it is called on."""
    if func.attr.endswith("_") and isinstance(func.value, ast.Name):
        reader.names[func.value.id] = value
    return value


def change(reader: Reader, node: ast.Call, short: str, base: Value, arguments: list[ast.expr]) -> Value:
    """Scores, weights or peaks after a function or method of torch; anything unknown serves something else."""
    others = [reader.value(a.value if isinstance(a, ast.Starred) else a) for a in arguments]
    others += [reader.value(k.value) for k in node.keywords]
    bare = short.rstrip("_")
    if bare in _ASKING or (short in ("expand_as", "view_as") and isinstance(base, Peak)):
        return base if isinstance(base, Peak) else PLAIN
    if isinstance(base, Peak):
        return base if short in ("detach", "unsqueeze", "clone") else give_up(base, *others)
    if bare in SAME:
        return base
    if isinstance(base, Scores):
        if bare == "softmax":
            return take_softmax(
                reader, [], softmax_axis(reader, node, 1 if arguments is not node.args else 0), node, base
            )
        if bare == "masked_fill" and len(arguments) == 2 and not is_zero(reader.source, arguments[1]):
            return replace(base, is_masked=True)
        if bare in ("amax", "max"):
            return Peak(base.chains)
    if isinstance(base, Weights):
        if bare == "masked_fill" and len(arguments) == 2 and base.is_masked and is_zero(reader.source, arguments[1]):
            return base
        if bare == "nan_to_num" and base.is_masked:
            return base
        if bare in TURNS:
            return turned_weights(reader.source, base, bare, arguments)
    if isinstance(base, (Scores, Weights)):
        if bare in RESHAPES:
            return reshape_leading_axes(reader.source, base, arguments) or give_up(base, *others)
        if bare in ("unsqueeze", "squeeze") and [constant(reader.source, a) for a in arguments] in ([0], [1]):
            return replace(base, rank=None)
    return give_up(base, *others)


def read_where(reader: Reader, node: ast.Call) -> Value:
    """`torch.where(mask, scores, low)`, either way round."""
    want(reader.value(node.args[0]))
    first, second = reader.value(node.args[1]), reader.value(node.args[2])
    scores, other = (first, node.args[2]) if isinstance(first, Scores) else (second, node.args[1])
    if isinstance(scores, Scores) and not is_zero(reader.source, other):
        want(second if scores is first else first)
        return replace(scores, is_masked=True)
    return give_up(first, second)


def take_softmax(
    reader: Reader, given: list[ast.expr], dim: object, node: ast.expr, value: Value | None = None
) -> Value:
    """Weights, where the softmax of the first argument, or of a value, is taken over the keys of its scores."""
    if value is None:
        value = reader.value(given[0]) if given else PLAIN
    if not isinstance(value, Scores):
        return give_up(value)
    is_last = isinstance(dim, int) and (
        dim == value.axis if dim < 0 else value.rank is not None and dim - value.rank == value.axis
    )
    if not is_last:
        return give_up(value)
    for chain in value.chains:
        chain.softmax = node
    return Weights(value.chains, value.axis, value.rank, value.is_masked)


def softmax_axis(reader: Reader, call: ast.Call, position: int) -> object:
    """The axis that a softmax is told, by name or at this place; None where the text does not say it."""
    given = argument(reader.source, call, "dim", position)
    if isinstance(given, Known):
        given = argument(reader.source, call, "axis")
    return None if isinstance(given, Known) else constant(reader.source, given)


def rearrange(reader: Reader, node: ast.Call) -> Value:
    """einops: what comes out is turned where the last axis of the pattern is another one than before."""
    value = reader.value(node.args[0]) if node.args else PLAIN
    pattern = constant(reader.source, node.args[1]) if len(node.args) > 1 else None
    if not isinstance(pattern, str) or "->" not in pattern:
        return give_up(value)
    before, after = pattern_axes(pattern)
    if isinstance(value, Weights) and len(before) > 1 and after == [*before[:-2], before[-1], before[-2]]:
        return replace(value, is_turned=not value.is_turned)
    if not isinstance(value, Operand):
        return give_up(value)
    is_turned = bool(before and after) and letters(before[-1])[-1:] != letters(after[-1])[-1:]
    rank = None if "..." in after else len(after)
    return Operand(is_turned, rank, features=width_in_pattern(before, after), is_many=value.is_many)


def is_zero(source: Source, node: ast.expr) -> bool:
    return constant(source, node) == 0
