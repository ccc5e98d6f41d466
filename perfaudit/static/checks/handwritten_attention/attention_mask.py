"""The mask of a written-out attention: what it hides, and whether it is the lower triangle that the library makes by itself."""

from __future__ import annotations

import ast
import math

from perfaudit.static.source import Source
from perfaudit.static.understanding.members import own_values
from perfaudit.static.understanding.values import assigned_value, constant

FINITE = -1e4  # at or below it, the exponential of a masked score is 0 in every dtype
_INFINITE = {"math.inf", "torch.inf", "numpy.inf"}
_KEEPS = {"view", "reshape", "bool", "unsqueeze", "byte"}  # of a mask: the same positions


def seen_by(source: Source, hidden: ast.expr) -> tuple[ast.expr, bool]:
    """The mask in a condition for what is hidden, and whether it is true where something is seen."""
    if isinstance(hidden, ast.Compare) and len(hidden.ops) == 1 and isinstance(hidden.ops[0], ast.Eq):
        return hidden.left, constant(source, hidden.comparators[0]) == 0
    if isinstance(hidden, ast.UnaryOp) and isinstance(hidden.op, ast.Invert):
        return hidden.operand, True
    return hidden, False


def is_infinite(source: Source, node: ast.expr) -> bool:
    """`float("-inf")`, `-math.inf` and their like."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "float" and inner.args:
        return constant(source, inner.args[0]) in (("inf", "Inf") if negative else ("-inf", "-Inf"))
    return negative and source.qualified_name(inner) in _INFINITE


def is_low(source: Source, node: ast.expr) -> bool:
    value = constant(source, node)
    return isinstance(value, (int, float)) and not math.isnan(value) and value <= FINITE


def is_causal(source: Source, function: ast.AST, mask: ast.expr, keeps: bool) -> bool:
    """Whether a mask is, or is a square corner of, a lower triangle of what is seen."""
    if isinstance(mask, ast.Name):
        bindings = source.lookup(mask)
        value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
        if isinstance(value, ast.Subscript):
            reads = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == mask.id]
            # Nothing else writes to a name that is bound and read once.
            return len(reads) == 2 and is_causal(source, function, value, keeps)
        return value is not None and _is_triangle(source, value, keeps)
    if not isinstance(mask, ast.Subscript) or not isinstance(mask.slice, ast.Tuple):
        return False
    ends = [_corner(source, part) for part in mask.slice.elts]
    if len(ends) < 2 or ends[-1] != ends[-2] or not ends[-1] or any(end != "" for end in ends[:-2]):
        return False
    base = mask.value
    if isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and base.func.attr == "bool":
        base = base.func.value
    if not isinstance(base, ast.Attribute) or not isinstance(base.value, ast.Name) or base.value.id != "self":
        return False
    definition = source.enclosing(mask, ast.ClassDef)
    buffers = [
        call.args[1]
        for call in source.calls(".register_buffer")
        if len(call.args) > 1
        and source.enclosing(call, ast.ClassDef) is definition
        and constant(source, call.args[0]) == base.attr
    ]
    if len(buffers) != 1 or own_values(source, mask, base.attr):
        return False
    value = buffers[0]
    if isinstance(value, ast.Name):
        bindings = source.lookup(value)
        bound = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
        return bound is not None and _is_triangle(source, bound, keeps)
    return _is_triangle(source, value, keeps)


def _corner(source: Source, node: ast.expr) -> str | None:
    """`T` of a slice `:T`, "" of `:`, None of anything else."""
    if not isinstance(node, ast.Slice) or node.lower is not None or node.step is not None:
        return None
    return "" if node.upper is None else source.text_of(node.upper)


def _is_triangle(source: Source, node: ast.expr, keeps: bool) -> bool:
    """`torch.tril(torch.ones(n, n))` of what is seen, or `torch.triu(torch.ones(n, n), diagonal=1)` of what is not."""
    while isinstance(node, (ast.Call, ast.Compare)):
        if isinstance(node, ast.Compare):
            if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
                return False
            keeps = keeps is not (constant(source, node.comparators[0]) == 0)
            node = node.left
            continue
        name = source.qualified_name(node.func)
        if name in ("torch.tril", "torch.triu"):
            given = [*node.args[1:], *(k.value for k in node.keywords)]
            diagonal = [constant(source, a) for a in given]
            right = diagonal in ([], [0]) and keeps if name == "torch.tril" else diagonal == [1] and not keeps
            return right and bool(node.args) and _is_square(source, node.args[0])
        if name is not None or not isinstance(node.func, ast.Attribute) or node.func.attr not in _KEEPS:
            return False
        node = node.func.value
    return False


def _is_square(source: Source, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or source.qualified_name(node.func) != "torch.ones":
        return False
    sizes = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], (ast.Tuple, ast.List)) else node.args
    texts = [source.text_of(size) for size in sizes]
    return len(texts) >= 2 and texts[-1] == texts[-2] and all(text == "1" for text in texts[:-2])
