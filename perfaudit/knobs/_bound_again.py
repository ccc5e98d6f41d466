"""Calls that give a name another value later in the same function: an optimizer that is built anew after a warm-up, say."""

from __future__ import annotations

import ast
from collections.abc import Collection

from perfaudit.static.source import LOOPS, Source
from perfaudit.static.understanding.branches import branches, exclude_each_other


def calls_bound_again(source: Source, call: ast.Call, kinds: Collection[str]) -> list[ast.Call]:
    """Calls of these classes, by their full names, that are assigned behind a call to what it is assigned to, in their order.

    Only where that happens for certain, or in a loop that the call is not in: of conditions that are written one behind the
    other, as `if name == "sgd":` and `if name == "adam":`, one may exclude the other.
    """
    name = _assigned_to(source, call)
    if not name:
        return []
    around = branches(source, call)
    found = []
    for other in source.nodes(ast.Call):
        if (other.lineno, other.col_offset) <= (call.lineno, call.col_offset) or source.scope(
            other
        ) is not source.scope(call):
            continue
        if source.qualified_name(other.func) not in kinds or _assigned_to(source, other) != name:
            continue
        path = branches(source, other)
        comes_for_certain = all(branch in around for branch in path)
        is_in_own_loop = any(isinstance(node, LOOPS) and (node, side) not in around for node, side in path)
        if not exclude_each_other(around, path) and (comes_for_certain or is_in_own_loop):
            found.append(other)
    return found


def _assigned_to(source: Source, call: ast.Call) -> str:
    """The text of the one name or attribute that a statement gives the value of this call; "" for any other call."""
    statement = source.statement(call)
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = list(statement.targets)  # type: ignore[arg-type]  # expressions, which these are too
    else:
        return ""
    is_plain = statement.value is call and len(targets) == 1 and isinstance(targets[0], (ast.Name, ast.Attribute))
    return ast.unparse(targets[0]) if is_plain else ""
