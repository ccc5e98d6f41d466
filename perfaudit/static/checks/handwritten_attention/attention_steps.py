"""What one step makes of operands, scores and weights: arithmetic, a turn, a new shape. Anything else wants them."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from perfaudit.expressions import regex
from perfaudit.static.checks.handwritten_attention.attention_axes import width_in_sizes
from perfaudit.static.checks.handwritten_attention.attention_values import (
    PLAIN,
    Operand,
    Peak,
    Scores,
    Value,
    Weights,
    exchange_axes,
    permute_axes,
    piece,
    want,
)
from perfaudit.static.source import Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import constant

SAME = {"float", "to", "type", "type_as", "half", "bfloat16", "contiguous", "clone", "double"}
TURNS = {"transpose", "permute", "swapaxes", "swapdims", "t", "adjoint", "movedim"}
RESHAPES = {"view", "reshape"}
_STEADY = {ast.Add, ast.Sub, ast.Mult, ast.Div}
_CUTS = {"chunk", "split", "unbind", "tensor_split"}
_SCALES = (PLAIN, Operand(is_own=True))  # `math.sqrt(d)`, `self.scale`
_MULTIPLIER = regex(r"mask|adj|gate|decay|dist|weights?$", re.IGNORECASE)  # no factor of a scale


def give_up(*values: Value) -> Value:
    want(*values)
    return PLAIN


def arithmetic(op: type, left: Value, right: Value, right_node: ast.expr, left_node: ast.expr | None = None) -> Value:
    """Scores stay scores under a scale, a mask or bias that is added, and the subtraction of their peak."""
    if isinstance(left, Scores) and isinstance(right, Peak) and op is ast.Sub:
        return left
    if isinstance(left, Scores) and isinstance(right, Scores) and op is ast.Add:
        return replace(left, chains=left.chains | right.chains, is_masked=left.is_masked or right.is_masked)
    if isinstance(left, Operand) and isinstance(right, Operand):
        known = left if left.features or left.rank else right  # the queries, not what scales them
        is_scaled = (right in _SCALES and op in (ast.Mult, ast.Div)) or (left in _SCALES and op is ast.Mult)
        turned = is_scaled and (left.turned or right.turned)  # `k.transpose(-2, -1) / math.sqrt(d)`
        return Operand(turned, known.rank, features=known.features) if op in _STEADY else PLAIN
    other, other_node = (right, right_node) if isinstance(left, Scores) else (left, left_node)
    scores = left if isinstance(left, Scores) else right
    if isinstance(scores, Scores) and isinstance(other, Operand):
        turned_over = scores is right and op in (ast.Sub, ast.Div)
        multiplies_mask = op in (ast.Mult, ast.Div) and other_node is not None and _is_mask(other_node)
        if op in (ast.Add, ast.Sub, ast.Mult, ast.Div) and not turned_over and not multiplies_mask:
            return replace(scores, is_masked=scores.is_masked or op in (ast.Add, ast.Sub))
    want(left, right)
    return PLAIN


def _is_mask(node: ast.expr) -> bool:
    return any(_MULTIPLIER.search(last_name(part)) for part in walk(node))


def finish(weights: Weights, node: ast.expr, values_node: ast.expr, values: Value, fits: bool) -> Value:
    if not fits or not isinstance(values, Operand) or values.is_own:
        want(weights, values)
        return PLAIN
    for chain in weights.chains:
        chain.outputs.append((node, values_node))
        chain.is_masked |= weights.is_masked
    return PLAIN


def operand_after_method(source: Source, node: ast.Call, short: str, base: Operand) -> Operand:
    """What a method of an operand gives."""
    if short in TURNS:
        return turned_operand(source, base, short, node.args)
    if short in RESHAPES:
        listed = node.args[0] if len(node.args) == 1 else None
        sizes = listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else node.args
        plain = len(sizes) > 1 and not any(isinstance(a, ast.Starred) for a in sizes)
        features = width_in_sizes(sizes) if plain else None
        return Operand(base.turned, len(sizes) if plain else None, features=features)
    if short in _CUTS:
        return replace(piece(base) if short == "unbind" else base, turned=False, is_own=False, is_many=True)
    if short in SAME or short == "detach":
        return base
    if short in ("expand", "repeat", "flatten", "squeeze", "unsqueeze", "reshape_as", "view_as"):
        return Operand(base.turned)
    return PLAIN


def turned_operand(source: Source, base: Operand, short: str, arguments: list[ast.expr]) -> Operand:
    listed = arguments[0].elts if len(arguments) == 1 and isinstance(arguments[0], (ast.Tuple, ast.List)) else None
    axes = [constant(source, a) for a in listed or arguments]
    if short == "permute" and len(axes) > 1:
        return permute_axes(base, axes)
    if short == "t":
        return exchange_axes(replace(base, rank=2), -1, -2)
    if len(axes) == 2 and short != "movedim":
        return exchange_axes(base, *axes)
    return Operand(True, base.rank, base.is_own)


def operand_at_index(source: Source, base: Operand, index: ast.expr) -> Operand:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if all(isinstance(part, ast.Slice) for part in parts):
        return Operand(rank=base.rank, features=base.features)
    return piece(base) if isinstance(constant(source, index), int) else PLAIN


def turned_weights(source: Source, base: Weights, short: str, arguments: list[ast.expr]) -> Value:
    """Weights with the last two axes exchanged."""
    listed = arguments[0].elts if len(arguments) == 1 and isinstance(arguments[0], (ast.Tuple, ast.List)) else None
    axes = [constant(source, a) for a in listed or arguments]
    n = len(axes)
    if short == "permute":
        is_swap = n >= 2 and axes == [*range(n - 2), n - 1, n - 2]
    else:
        from_end = {-1, -2} if base.rank is None else {-1, -2, base.rank - 1, base.rank - 2}
        guessed = base.rank is None and axes in ([1, 2], [2, 1])  # of three axes, as for `bmm`
        is_swap = short == "t" or guessed or (n == 2 and axes[0] != axes[1] and set(axes) <= from_end)
    return replace(base, is_turned=not base.is_turned) if is_swap else give_up(base)


def reshape_leading_axes(source: Source, base: Scores | Weights, sizes: list[ast.expr]) -> Value | None:
    """Leading axes split or joined; None where the axis of the keys may be touched."""
    if len(sizes) < 2 or base.axis != -1 or constant(source, sizes[-1]) in (-1, 1):
        return None
    starred = any(isinstance(size, ast.Starred) for size in sizes)
    return replace(base, rank=None if starred else len(sizes))
