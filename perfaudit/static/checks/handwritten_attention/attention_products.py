"""Products of an attention: queries by keys, which begin a chain, and weights by values, which end it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.static.checks.handwritten_attention.attention_axes import equation, score_axes, sums_over
from perfaudit.static.checks.handwritten_attention.attention_steps import finish
from perfaudit.static.checks.handwritten_attention.attention_values import (
    PLAIN,
    Chain,
    Operand,
    Scores,
    Value,
    Weights,
    want,
)
from perfaudit.static.understanding.names import dotted_name, last_name

if TYPE_CHECKING:
    from perfaudit.static.checks.handwritten_attention.attention_reader import Reader

_QUERY = regex(r"(^|_)(x?q|qs?|query|queries|quer|theta|proj_query)(_|\d|$)", re.IGNORECASE)
_KEY = regex(r"(^|_)(x?k|ks?|key|keys|kt|phi|proj_key)(_|\d|$)", re.IGNORECASE)
_VALUE = regex(r"(^|_)(x?v|vs?|value|values)(_|\d|$)", re.IGNORECASE)
PRODUCTS = {"matmul", "bmm", "mm"}
_RANKS = {"bmm": 3, "mm": 2}


def read_product(
    reader: Reader, node: ast.expr, left_node: ast.expr, right_node: ast.expr, left: Value, right: Value
) -> Value:
    """`left @ right`: scores of queries and keys, or the weighted sum of values, which ends a chain."""
    if isinstance(left, Weights):
        return finish(left, node, right_node, right, left.axis == -1 and not left.is_turned)
    if isinstance(right, Weights):
        return finish(right, node, left_node, left, right.axis == -1 and right.is_turned)
    want(left, right)
    first = left if isinstance(left, Operand) else PLAIN
    second = right if isinstance(right, Operand) else PLAIN
    if second.is_own or (first.is_own and not second.turned):
        return PLAIN
    if first.features not in (None, -1) or second.features not in (None, -2):
        return PLAIN  # summed over the positions: attention over channels
    left_name, right_name = _name_inside(left_node), _name_inside(right_node)
    if _VALUE.search(right_name) or (_KEY.search(left_name) and not _KEY.search(right_name)):
        return PLAIN  # keys and values: linear attention
    named = _QUERY.search(left_name) and _KEY.search(right_name)
    if not (first.turned or second.turned or named):
        return PLAIN
    operator = last_name(node.func) if isinstance(node, ast.Call) else ""
    guess = second.guess if second.turned else None  # `q @ k.transpose(1, 2)` has three axes
    return _begin(reader, node, left_node, right_node, -1, _RANKS.get(operator) or first.rank or second.rank or guess)


def _begin(reader: Reader, node: ast.expr, query: ast.expr, key: ast.expr, axis: int, rank: int | None) -> Scores:
    chain = Chain(node, query, key, reader.stack[-1], rank)
    reader.chains.append(chain)
    return Scores(frozenset([chain]), axis, rank)


def read_einsum(reader: Reader, node: ast.Call) -> Value:
    """A product that is written as an equation."""
    texts = [a for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    operands = [a for a in node.args if a not in texts]
    if len(operands) == 1 and isinstance(operands[0], (ast.List, ast.Tuple)):
        operands = operands[0].elts
    values = [reader.value(a) for a in operands]
    found = equation(texts[0].value) if len(texts) == 1 and len(operands) == 2 else None  # type: ignore[arg-type]  # a text
    if found is None:
        want(*values)
        return PLAIN
    inputs, out = found
    for (value, other), (summed, others) in zip(
        [(values[0], values[1]), (values[1], values[0])], [inputs, inputs[::-1]], strict=True
    ):
        if isinstance(value, Weights):
            other_node = operands[1] if value is values[0] else operands[0]
            axis = (-2 if value.axis == -1 else 0) if value.is_turned else value.axis
            fits = axis != 0 and sums_over(summed, others, out, axis)
            return finish(value, node, other_node, other, fits)
    want(*values)
    if any(isinstance(v, Operand) and v.is_own for v in values[1:]):
        return PLAIN
    query = score_axes(inputs, out)
    if query is None:
        return Operand(rank=len(out))
    if any(_keeps_features(value, axes, out) for value, axes in zip(values, inputs, strict=True)):
        return Operand(rank=len(out))  # attention over channels
    first, second, axis = query
    return _begin(reader, node, operands[first], operands[second], axis, None if "..." in out else len(out))


def _keeps_features(value: Value, axes: list[str], out: list[str]) -> bool:
    """Whether an equation does not sum over the width of the heads."""
    place = value.features if isinstance(value, Operand) else None
    return place is not None and len(axes) >= -place and axes[place] in out


def _name_inside(node: ast.expr) -> str:
    """The name at the root of an expression: "k" of `k.transpose(-2, -1)` and of `k`."""
    while True:
        if isinstance(node, ast.Call):
            node = node.func if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else node.func
        elif isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name):
            node = node.value
        elif isinstance(node, ast.Attribute):
            return node.attr if dotted_name(node).startswith("self.") else last_name(node.value)
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            return last_name(node)
