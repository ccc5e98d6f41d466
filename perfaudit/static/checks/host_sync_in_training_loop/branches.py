"""Reads that stand in each branch of a condition, so that one of them is made on every step: teacher forcing, or none."""

from __future__ import annotations

import ast
from collections.abc import Collection

from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.rarely import skip_before

_SURE = (ast.stmt, ast.expr, ast.keyword)  # what stands in these runs where they do, but for those below
_UNSURE = (
    ast.If,
    ast.While,
    ast.Try,
    ast.TryStar,
    ast.Match,
    ast.IfExp,
    ast.BoolOp,
    ast.Lambda,
    *FUNCTIONS,
    ast.ClassDef,
)


def in_each_branch(source: Source, root: Loop | Function, places: Collection[ast.expr]) -> frozenset[int]:
    """The ids of places in the branches of a condition that runs each time, where both branches have one.

    Not of a condition of which one branch counts as run each time by itself, as the `else` of `if mean is None:` does.
    """
    found: dict[int, tuple[ast.If, dict[bool, list[ast.expr]]]] = {}
    for place in places:
        choice, is_in_body = _choice_around(source, root, place)
        if choice is not None:
            found.setdefault(id(choice), (choice, {}))[1].setdefault(is_in_body, []).append(place)
    both = [
        (choice, [p for part in parts.values() for p in part]) for choice, parts in found.values() if len(parts) == 2
    ]
    return frozenset(
        id(place)
        for choice, inside in both
        if runs_each_time(source, choice, root) and not any(runs_each_time(source, p, root) for p in inside)
        for place in inside
    )


def _choice_around(source: Source, root: Loop | Function, place: ast.expr) -> tuple[ast.If | None, bool]:
    """The condition with a branch that surely runs a place, and whether that is the first one; None where there is no such."""
    child: ast.AST = place
    for ancestor in source.ancestors(place):
        if ancestor is root or (isinstance(child, ast.stmt) and skip_before(source, child) is not None):
            return None, False
        if isinstance(ancestor, ast.If) and child is not ancestor.test and ancestor.orelse:
            return ancestor, any(child is item for item in ancestor.body)
        if isinstance(ancestor, _UNSURE) or not isinstance(ancestor, _SURE):
            return None, False
        child = ancestor
    return None, False
