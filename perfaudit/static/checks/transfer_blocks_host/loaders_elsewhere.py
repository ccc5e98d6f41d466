"""The DataLoaders that a loop runs over where functions of other files of the project make them, or hand them in."""

from __future__ import annotations

import ast

from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.calls_by_name import calls_in_importers
from perfaudit.static.understanding.loaders import loaders, loaders_returned
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.values import argument

_MOST_STEPS = 4  # from file to file, and from a name to what it is bound to
Found = list[tuple[Source, ast.Call]]


def loaders_elsewhere(source: Source, over: ast.expr) -> Found:
    """Every DataLoader call of other files that an expression may be, with its file; none where it may be anything else.

    Follows a name to the function of another file that makes the loader, or a row of several, and a parameter to what the
    files that import this one pass for it, also for one of `__init__` that is kept as `self.loader`.
    """
    if source.neighbours is None:
        return []
    return _loaders_behind(source, source.neighbours, over, _MOST_STEPS) or []


def _loaders_behind(there: Source, neighbours: Neighbours, node: ast.expr, depth: int) -> Found | None:
    own = loaders(there, node)
    if own is not None:
        return [(there, call) for call in own]
    if not depth:
        return None
    if isinstance(node, ast.Call):
        return _loaders_of_call(there, neighbours, node, None)
    if isinstance(node, ast.Attribute) and is_own(node):
        kept = own_values(there, node, node.attr)
        only = kept[0] if len(kept) == 1 else None
        return _loaders_behind(there, neighbours, only, depth - 1) if isinstance(only, ast.Name) else None
    bindings = there.lookup(node) if isinstance(node, ast.Name) else []
    only_binding = bindings[0] if len(bindings) == 1 else None
    if isinstance(only_binding, ast.arg):
        return _loaders_handed_in(there, neighbours, only_binding, depth - 1)
    return (
        _loaders_of_binding(there, neighbours, only_binding, depth - 1) if isinstance(only_binding, ast.Name) else None
    )


def _loaders_of_binding(there: Source, neighbours: Neighbours, binding: ast.Name, depth: int) -> Found | None:
    """What `loader = build(args)` or `train, test = build(args)` makes of a name."""
    statement, row = there.statement(binding), there.parent(binding)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    if statement.targets[0] is binding:
        return _loaders_behind(there, neighbours, statement.value, depth)
    is_plain = isinstance(row, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in row.elts)
    if statement.targets[0] is not row or not is_plain or not isinstance(row, (ast.Tuple, ast.List)):
        return None
    place = next(n for n, element in enumerate(row.elts) if element is binding)
    value = statement.value
    return _loaders_of_call(there, neighbours, value, (place, len(row.elts))) if isinstance(value, ast.Call) else None


def _loaders_of_call(
    there: Source, neighbours: Neighbours, call: ast.Call, place: tuple[int, int] | None
) -> Found | None:
    """What a function of another file returns to a call, or the element at `place` of a row of that length."""
    dotted = there.qualified_name(call.func)
    found = neighbours.definition_of(dotted, None if there.neighbours is neighbours else there) if dotted else None
    if found is None or not isinstance(found[1], FUNCTIONS):
        return None
    made = loaders_returned(found[0], found[1], place)
    return [(found[0], one) for one in made] if made is not None else None


def _loaders_handed_in(there: Source, neighbours: Neighbours, parameter: ast.arg, depth: int) -> Found | None:
    """What all calls in this file and in those that import it pass for a parameter; None where one passes another thing.

    `fit(model, loader)` that a script calls hands the loader on to `train_epoch(model, loader)` of its own file.
    """
    function = there.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS) or there.neighbours is not neighbours:
        return None
    own, owner = callers(there, function), there.parent(function)
    name, first = function.name, 0
    if isinstance(owner, ast.ClassDef):
        name, first = (owner.name if name == "__init__" else name), 1
        if function.name != "__init__" and (not own or calls_in_importers(there, name)):  # of which object is not told
            return None
    elif own and len(there.uses_of(function, name)) != len(own):
        return None
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][first:]
    place = names.index(parameter.arg) if parameter.arg in names else None
    is_method = isinstance(owner, ast.ClassDef) and function.name != "__init__"
    calls = [(there, call) for call in own] + ([] if is_method else _calls_of(there, neighbours, name))
    found: Found = []
    for other, call in calls:
        given = argument(other, call, parameter.arg, place)
        made = _loaders_behind(other, neighbours, given, depth) if isinstance(given, ast.expr) else None
        if made is None:
            return None
        found += made
    return found or None


def _calls_of(source: Source, neighbours: Neighbours, name: str) -> Found:
    """The calls in other files of what is defined in this one by a name."""
    calls = calls_in_importers(source, name)
    return [(other, call) for other, call in calls if _is_imported(neighbours, other, call.func)]


def _is_imported(neighbours: Neighbours, other: Source, node: ast.expr) -> bool:
    dotted = other.qualified_name(node)
    if dotted is None and isinstance(node, ast.Name):
        return neighbours.is_taken_by_star(node.id, other)
    if dotted is None or not (dotted.startswith(".") or neighbours.is_own_module(dotted)):
        return False
    return neighbours.definition_of(dotted, other) is None  # else it is that of a third file
