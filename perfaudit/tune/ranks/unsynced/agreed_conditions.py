"""Whether all ranks answer the condition that tells the last pass alike: else one waits for sums that another never sends."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.source import Loop
from perfaudit.tune.ranks.unsynced.assigned_names import last_names

_RANK = regex(r"(^|_)rank($|_)|is_main|is_master")
# The first or only one that a loop goes over, where a bar stands around `enumerate` or `range`.
_COUNTER = regex(r"^([ijkn]|ni|nb|it)$|idx|ind(ex|$)|step|iter|num|count|(^|_)i$|batch_(i|id|nr)$")


def why_ranks_differ(test: ast.expr, loop: Loop) -> str:
    """Why ranks may answer it differently, as what the condition does; "" where nothing says so.

    What a turn computes from its batch is a rank's own: `tokens += x.numel()`.
    """
    names = _names(test)
    if any(_RANK.search(name.lstrip(".")) for name in names):
        return "asks which rank it is"
    own = set(_batches(loop))
    while more := {name for name, value in _assigned_in(loop) if name not in own and own & _names(value)}:
        own |= more
    return "depends on what a rank's own batches hold" if names & own else ""


def _batches(loop: Loop) -> Iterator[str]:
    """Names of what a turn gets that other ranks have otherwise: not the number of the turn."""
    if isinstance(loop, ast.For):
        called = loop.iter.func if isinstance(loop.iter, ast.Call) else None
        counts = called.id if isinstance(called, ast.Name) else ""
        target = loop.target
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if isinstance(first, ast.Name) and (
            (counts == "enumerate" and first is not target) or _COUNTER.search(first.id)
        ):
            yield from _names(target) - {first.id}
        elif counts != "range":
            yield from _names(target)
    for name, value in _assigned_in(loop):
        if any(isinstance(node, ast.Call) and _names(node.func) == {"next"} for node in ast.walk(value)):
            yield name


def _assigned_in(loop: Loop) -> Iterator[tuple[str, ast.expr]]:
    for node in (node for statement in loop.body for node in ast.walk(statement)):
        if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield from ((name, node.value) for name in last_names(node.target))
        elif isinstance(node, ast.Assign):
            yield from ((name, node.value) for target in node.targets for name in last_names(target))


def _names(node: ast.AST) -> set[str]:
    """All names in an expression, those of attributes with a point in front; not `self`, whose attributes are told apart."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {"self"}
    return names | {f".{each.attr}" for each in ast.walk(node) if isinstance(each, ast.Attribute)}
