"""Whether each row has one query: then there are no scores of every pair of positions to store."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.values import assigned_value, constant

MAX_NAMES = 4  # that are followed from the product to where the queries get their shape
_POSITIONS = 1  # the axis of the positions before the heads are split


def is_one_query(source: Source, query: ast.expr, names: int = MAX_NAMES) -> bool:
    """`q.reshape(rows, 1, width)`, `q.view(rows, heads, 1, width)`, `q.reshape(rows, 1, heads, width).transpose(1, 2)`, and
    what a layer makes of one position, `self.q(x[:, :1])`, also with the heads split by `rearrange`.

    Also where a factor scales them, in a name of their own: `q = q * self.scale`.
    """
    if isinstance(query, ast.BinOp) and isinstance(query.op, (ast.Mult, ast.Div)):
        return is_one_query(source, query.left, names)
    if isinstance(query, ast.Name):
        values = [assigned_value(source, binding) for binding in source.lookup(query)]
        shaped = [value for value in values if value is not None and not _is_made_of_itself(source, value, query.id)]
        is_clear = bool(shaped) and names > 0 and None not in values
        return is_clear and all(is_one_query(source, value, names - 1) for value in shaped)
    if not isinstance(query, ast.Call):
        return False
    if (given := _with_heads_split(source, query)) is not None:
        return is_one_query(source, given, names) if isinstance(given, ast.Name) else _is_of_one(source, given)
    if _is_of_one(source, query):
        return True
    if not isinstance(query.func, ast.Attribute):
        return False
    if _exchanges_middle_axes(source, query.func.attr, query.args):
        return _has_size_one(source, query.func.value, place=1, names=names)
    return _has_size_one(source, query, place=-2, names=names)


def _is_of_one(source: Source, made: ast.expr) -> bool:
    """Whether a layer of the object is given one position of a sequence, `self.q(x[:, 0:1])`."""
    if not isinstance(made, ast.Call) or len(made.args) != 1 or not is_own(made.func):
        return False
    taken = made.args[0]
    if not isinstance(taken, ast.Subscript) or not isinstance(taken.slice, ast.Tuple):
        return False
    parts = taken.slice.elts
    part = parts[_POSITIONS] if len(parts) > _POSITIONS else None
    if not isinstance(part, ast.Slice) or part.step is not None or part.upper is None:
        return False
    first = 0 if part.lower is None else constant(source, part.lower)
    last = constant(source, part.upper)
    return isinstance(first, int) and isinstance(last, int) and 0 <= first == last - 1


def _with_heads_split(source: Source, call: ast.Call) -> ast.expr | None:
    """What `rearrange(q, "b s (n e) -> b n s e")` splits into heads: the positions stay the last axis but one."""
    if source.qualified_name(call.func) != "einops.rearrange" or len(call.args) < 2:
        return None
    pattern = constant(source, call.args[1])
    sides = pattern.split("->") if isinstance(pattern, str) else []
    before, after = (side.split() for side in sides) if len(sides) == 2 else ([], [])
    is_split = len(before) > _POSITIONS and len(after) == 4 and before[_POSITIONS] == after[-2]
    return call.args[0] if is_split and before[_POSITIONS].isidentifier() else None


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


def _is_made_of_itself(source: Source, value: ast.expr, name: str) -> bool:
    """`q * scale`, and `rearrange(q, "b s (n e) -> b n s e") * scale`, for the name itself."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
        return (isinstance(value.left, ast.Name) and value.left.id == name) or _is_made_of_itself(
            source, value.left, name
        )
    given = _with_heads_split(source, value) if isinstance(value, ast.Call) else None
    return isinstance(given, ast.Name) and given.id == name


def _exchanges_middle_axes(source: Source, method: str, arguments: list[ast.expr]) -> bool:
    """Whether a method turns rows, positions, heads into rows, heads, positions."""
    order = [constant(source, axis) for axis in arguments]
    if method == "permute":
        return order == [0, 2, 1, 3]
    return method in ("transpose", "swapaxes") and sorted(map(str, order)) == ["1", "2"]
