"""Whether each row has one query: then there are no scores of every pair of positions to store."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.understanding.values import assigned_value, constant

MAX_NAMES = 4  # that are followed from the product to where the queries get their shape


def is_one_query(source: Source, query: ast.expr, names: int = MAX_NAMES) -> bool:
    """`q.reshape(rows, 1, width)`, `q.view(rows, heads, 1, width)` or `q.reshape(rows, 1, heads, width).transpose(1, 2)`.

    Also where a factor scales them, in a name of their own: `q = q * self.scale`.
    """
    if isinstance(query, ast.BinOp) and isinstance(query.op, (ast.Mult, ast.Div)):
        return is_one_query(source, query.left, names)
    if isinstance(query, ast.Name):
        values = [assigned_value(source, binding) for binding in source.lookup(query)]
        shaped = [value for value in values if value is not None and not _is_scaled(value, query.id)]
        is_clear = bool(shaped) and names > 0 and None not in values
        return is_clear and all(is_one_query(source, value, names - 1) for value in shaped)
    if not isinstance(query, ast.Call) or not isinstance(query.func, ast.Attribute):
        return False
    if _exchanges_middle_axes(source, query.func.attr, query.args):
        return _has_size_one(source, query.func.value, place=1, names=names)
    return _has_size_one(source, query, place=-2, names=names)


def _has_size_one(source: Source, made: ast.expr, place: int, names: int) -> bool:
    """Whether a value is shaped with the size 1 at a place, directly or under a name that is bound once."""
    if isinstance(made, ast.Name):
        values = [assigned_value(source, binding) for binding in source.lookup(made)]
        only = values[0] if len(values) == 1 and names > 0 else None
        return only is not None and _has_size_one(source, only, place, names - 1)
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute):
        return False
    is_shaped = made.func.attr in ("reshape", "view") and len(made.args) >= 3
    return is_shaped and constant(source, made.args[place]) == 1


def _is_scaled(value: ast.expr, name: str) -> bool:
    """`q * scale`, for the name itself."""
    is_factor = isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div))
    return is_factor and isinstance(value, ast.BinOp) and isinstance(value.left, ast.Name) and value.left.id == name


def _exchanges_middle_axes(source: Source, method: str, arguments: list[ast.expr]) -> bool:
    """Whether a method turns rows, positions, heads into rows, heads, positions."""
    order = [constant(source, axis) for axis in arguments]
    if method == "permute":
        return order == [0, 2, 1, 3]
    return method in ("transpose", "swapaxes") and sorted(map(str, order)) == ["1", "2"]
