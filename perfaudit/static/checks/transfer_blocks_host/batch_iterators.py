"""Batches that a step asks for one by one: `next(batches)`."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.generators import iterable_behind
from perfaudit.static.understanding.loaders import Calls, given_to, is_handed_in, known_calls, loaders
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import value_bound


def iterator_asked(call: ast.Call) -> ast.expr | None:
    """`it` of `next(it)`, `it.__next__()` and `it.next()`."""
    if isinstance(call.func, ast.Name):
        return call.args[0] if call.func.id == "next" and len(call.args) == 1 else None
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in ("__next__", "next") and not call.args
    return call.func.value if is_method and isinstance(call.func, ast.Attribute) else None


def what_is_iterated(source: Source, iterator: ast.expr | None, depth: int = 3) -> Calls | None:
    """The loaders that an expression goes through by `iter(loader)`, also where a function is handed that.

    Of several that are taken side by side, and of those that a generator of the project passes on, again and again.
    """
    if isinstance(iterator, ast.Call):
        name = iterator.func.id if isinstance(iterator.func, ast.Name) else ""
        if name in ("iter", "enumerate") and iterator.args:  # of the pairs that come of it, the number is no tensor
            return _loaders_passed_on(source, iterator.args[0], depth)
        if name == "zip" and iterator.args and depth:
            return known_calls([_loaders_passed_on(source, part, depth) for part in iterator.args])
        return _loaders_passed_on(source, iterator, depth) if iterable_behind(source, iterator) is not None else None
    values: list[ast.expr | None] = []
    if isinstance(iterator, ast.Attribute) and is_own(iterator) and depth:
        values += own_values(source, iterator, iterator.attr)
        return known_calls([what_is_iterated(source, value, depth - 1) for value in values])
    if not isinstance(iterator, ast.Name) or not depth:
        return None
    for binding in source.lookup(iterator):
        given = given_to(source, binding) if isinstance(binding, ast.arg) else [value_bound(source, binding)]
        values += [None] if given is None else given
    return known_calls([what_is_iterated(source, value, depth - 1) for value in values])


def _loaders_passed_on(source: Source, node: ast.expr, depth: int) -> Calls | None:
    """The loaders that an iterable is, or that it is an iterator over."""
    behind = iterable_behind(source, node) if isinstance(node, ast.Call) and depth else None
    if behind is not None:
        return _loaders_passed_on(source, behind, depth - 1)
    own = loaders(source, node)
    return what_is_iterated(source, node, depth - 1) if own is None and depth else own


@remember
def unseen_takes(source: Source) -> tuple[ast.Call, ...]:
    """The `next(batches)` that show no loader, in training loops and in the `__next__` of a class that hands batches to others.

    `batches` is an attribute that a function of another file gives, or an iterator over a parameter.
    """
    iterators = [method for method in source.definitions if method.name == "__next__"]
    inside = {id(node) for around in (*(step.loop for step in step_loops(source)), *iterators) for node in walk(around)}
    asked = ((call, iterator_asked(call)) for call in source.nodes(ast.Call) if id(call) in inside)
    return tuple(
        call
        for call, taken_from in asked
        if taken_from is not None
        and ((is_own(taken_from) and _is_made_elsewhere(source, taken_from)) or _goes_through_given(source, taken_from))
    )


def _goes_through_given(source: Source, iterator: ast.expr) -> bool:
    """Whether a name, or an attribute of `self`, is always `iter(loader)` or `enumerate(loader)` of a parameter."""
    values = [value_bound(source, b) for b in source.lookup(iterator)] if isinstance(iterator, ast.Name) else []
    if isinstance(iterator, ast.Attribute) and is_own(iterator):
        values = own_values(source, iterator, iterator.attr)
    over = [
        value.args[0]
        for value in values
        if isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in ("iter", "enumerate")
        and value.args
    ]
    return 0 < len(over) == len(values) and all(
        isinstance(node, (ast.Name, ast.Attribute)) and is_handed_in(source, node) and loaders(source, node) is None
        for node in over
    )


def _is_made_elsewhere(source: Source, node: ast.expr) -> bool:
    values = own_values(source, node, node.attr) if isinstance(node, ast.Attribute) else []
    made = [value.func for value in values if isinstance(value, ast.Call)]
    modules = [source.aliases.get(func.id, "") for func in made if isinstance(func, ast.Name)]
    return (
        bool(values)
        and len(modules) == len(values)
        and all(
            module and source.neighbours is not None and source.neighbours.is_own_module(module) for module in modules
        )
    )
