"""Models that a function of the file puts into eval mode and returns: `net = load_model(path)`."""

from __future__ import annotations

import ast

from perfaudit.static.checks.eval_without_no_grad.eval_mode import MOVES, ends_eval_mode, models_put_in_eval_mode
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.names import dotted_name

_WHOLE = -1  # what is returned is the model, and no tuple with it


def given_by_builders(source: Source, call: ast.Call) -> list[tuple[str, ast.stmt]]:
    """The names that callers give to a model which the function around `model.eval()` returns, each with the assignment.

    None where the function may return another model, or this one in another mode.
    """
    function = source.enclosing(call, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(function)):
        return []
    place = _place_returned(source, function, call)
    if place is None:
        return []
    return [given for use in callers(source, function) if (given := _name_given(source, use, place)) is not None]


def given_by_callers(source: Source, call: ast.Call, model: str) -> list[tuple[str, ast.stmt]]:
    """The names that callers give to a model which the function around a call returns under its name, on every way out."""
    function = source.enclosing(call, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(function)):
        return []
    returned = [n for n in walk(function) if isinstance(n, ast.Return) and source.enclosing(n, *FUNCTIONS) is function]
    places = {_place_of(model, node.value) for node in returned}
    place = places.pop() if len(places) == 1 else None
    if place is None:
        return []
    return [given for use in callers(source, function) if (given := _name_given(source, use, place)) is not None]


def _place_returned(source: Source, function: Function, call: ast.Call) -> int | None:
    """Where in what a function returns the model stands; None where not every way out returns it, or nothing at all."""
    returned = [n for n in walk(function) if isinstance(n, ast.Return) and source.enclosing(n, *FUNCTIONS) is function]
    returned = [n for n in returned if n.value is not None]  # who gets nothing runs nothing
    statement = source.statement(call)
    if isinstance(statement, ast.Return):
        return _WHOLE if len(returned) == 1 and _is_moved_model(statement.value, call) else None
    if not any(item is statement for item in function.body) or not returned:
        return None
    (model, after), *others = models_put_in_eval_mode(source, call) or [("", statement)]
    behind = function.body[next(n for n, item in enumerate(function.body) if item is after) + 1 :]
    if not model or others or any(ends_eval_mode(source, node, model) for item in behind for node in walk(item)):
        return None
    if any(node.lineno < statement.lineno for node in returned):
        return None
    places = {_place_of(model, node.value) for node in returned}
    return places.pop() if len(places) == 1 else None


def _is_moved_model(value: ast.expr | None, call: ast.Call) -> bool:
    """Whether a value is `model.eval()`, with nothing behind it but methods that return the model: `model.eval().cuda()`."""
    while value is not call:
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr not in MOVES:
            return False
        value = value.func.value
    return not call.args and not call.keywords


def _place_of(model: str, value: ast.expr | None) -> int | None:
    if value is not None and dotted_name(value) == model:
        return _WHOLE
    parts = [dotted_name(item) for item in value.elts] if isinstance(value, ast.Tuple) else []
    return parts.index(model) if parts.count(model) == 1 else None


def _name_given(source: Source, use: ast.Call, place: int) -> tuple[str, ast.stmt] | None:
    """The name that an assignment gives to the model in what a call returns."""
    parent = source.parent(use)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return None
    target = parent.targets[0]
    if place != _WHOLE:
        items = target.elts if isinstance(target, ast.Tuple) else []
        if len(items) <= place or any(isinstance(item, ast.Starred) for item in items):
            return None
        target = items[place]
    name = dotted_name(target)
    return (name, parent) if name else None
