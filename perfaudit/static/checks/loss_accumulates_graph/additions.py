"""What adds a loss to a sum, or puts it into a list."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.source import Source
from perfaudit.static.understanding.losses import key
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.opaque import made_of


def addition(statement: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The sum and what is added to it, for `total += x` and `total = total + x`."""
    target: ast.expr
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) and not _is_list(statement.value):
        target, added = statement.target, statement.value
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
        target, added = statement.targets[0], statement.value.right
        is_sum = isinstance(statement.value.op, ast.Add) and key(statement.value.left) == key(target)
        if not is_sum or len(statement.targets) > 1:
            return None, None
    else:
        return None, None
    return (target, added) if key(target) else (None, None)


def put_into_list(source: Source, statement: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The list and what is put into it, for `losses.append(x)`, where nothing but an empty list is ever bound to its name."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "append":
        return None, None
    kept, name = call.func.value, dotted_name(call.func.value)
    values = made_of(source, kept) if name and len(call.args) == 1 else []
    if not values or not all(_is_list(value) and not getattr(value, "elts", ()) for value in values):
        return None, None
    return kept, call.args[0]


def _is_list(value: ast.expr) -> bool:
    """`[...]` and `list()`."""
    is_call = isinstance(value, ast.Call) and last_name(value.func) == "list" and not value.args
    return isinstance(value, ast.List) or is_call


def loss_terms(added: ast.expr, losses: set[str] | frozenset[str]) -> Iterator[ast.expr]:
    """The losses in what is added: `loss`, `loss * n`, `loss / n`, `loss.mean()`, `loss_a + loss_b`."""
    if isinstance(added, ast.BinOp) and isinstance(added.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        yield from loss_terms(added.left, losses)
        yield from loss_terms(added.right, losses)
    elif isinstance(added, ast.Call) and isinstance(added.func, ast.Attribute):
        if added.func.attr in ("mean", "sum") and key(added.func.value) in losses:
            yield added
    elif key(added) in losses:
        yield added
