"""Which bindings of a name hold where it is read."""

from __future__ import annotations

import ast

from perfaudit.static.source import LOOPS, Source


def reaching(source: Source, name: ast.Name) -> list[ast.Name]:
    """The bindings of a name of which one surely holds where it is read; none where branches or loops leave a doubt.

    Several only behind `try: batch = next(batches)` with an `except` that binds the name as well.
    """
    here = source.statement(name)
    bindings = [b for b in source.lookup(name) if isinstance(b, ast.Name)]
    before = [b for b in bindings if source.span(b).start < source.span(here).start]
    before = [b for b in before if not _is_in_other_branch(source, b, here)]
    if not before:
        return []
    last = max(before, key=lambda b: source.span(b).start)
    statement = source.statement(last)
    around = [here, *source.ancestors(here)]
    found = [last]
    block = source.parent(statement)
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        block = statement
    elif isinstance(block, ast.ExceptHandler) and isinstance(tried := source.parent(block), ast.Try):
        found += [b for b in before if source.parent(source.statement(b)) is tried]
        is_whole = len(tried.handlers) == 1 and len(found) == 2 and not tried.orelse
        statement, block = tried, source.parent(tried) if is_whole else None
    if not any(item is block for item in around) or _set_anew_in_loop(source, here, statement, bindings):
        return []
    return found


def _is_in_other_branch(source: Source, binding: ast.AST, here: ast.AST) -> bool:
    """Whether a binding stands in one branch of an `if` and a statement in the other one: `if old: x = ...`, `else: y = x`."""
    branches = _branches(source, here)
    return any(branches.get(test, is_then) is not is_then for test, is_then in _branches(source, binding).items())


def _branches(source: Source, node: ast.AST) -> dict[int, bool]:
    """The `if` statements around a node by id, and whether it stands in the first branch of each."""
    found = {}
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.If):
            found[id(ancestor)] = any(item is child for item in ancestor.body)
        child = ancestor
    return found


def _set_anew_in_loop(source: Source, here: ast.stmt, statement: ast.stmt, bindings: list[ast.Name]) -> bool:
    """Whether a loop between the binding and its use binds the name again, elsewhere than in the using statement."""
    for ancestor in source.ancestors(here):
        if ancestor is statement or ancestor is source.parent(statement):
            return False
        if isinstance(ancestor, LOOPS):
            inside = [b for b in bindings if any(a is ancestor for a in source.ancestors(b))]
            if any(source.statement(b) is not here for b in inside):
                return True
    return False
