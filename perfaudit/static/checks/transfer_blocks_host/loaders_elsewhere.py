"""The DataLoaders that a loop runs over where functions of other files of the project make them, or hand them in."""

from __future__ import annotations

import ast

from perfaudit.records import NamedTuple
from perfaudit.static.call_index import shape_of
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.calls_by_name import calls_in_importers
from perfaudit.static.understanding.handed_in import fits
from perfaudit.static.understanding.loaders import loaders, loaders_returned
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import argument

_MOST_STEPS = 4  # from file to file, and from a name to what it is bound to


class MadeLoader(NamedTuple):
    """A call that makes a DataLoader, and its file.

    Where a function returns that loader to a call elsewhere: the function is `maker`, the call `asked`, and its file `caller`.
    """

    source: Source
    call: ast.Call
    caller: Source | None = None
    asked: ast.Call | None = None
    maker: Function | None = None


Found = list[MadeLoader]
Calls = list[tuple[Source, ast.Call]]


def loaders_elsewhere(source: Source, over: ast.expr) -> Found:
    """Every DataLoader call of other files that an expression may be, with its file; none where it may be anything else.

    Follows a name to the function of another file that makes the loader, or a row of several, and a parameter to what the
    files that import this one pass for it, also for one of `__init__` that is kept as `self.loader`.
    """
    return (_loaders_behind(source, source, over, _MOST_STEPS) or []) if source.neighbours is not None else []


def _loaders_behind(there: Source, scanned: Source, node: ast.expr, depth: int) -> Found | None:
    own = loaders(there, node)
    if own is not None:
        return [MadeLoader(there, call) for call in own]
    if not depth:
        return None
    if isinstance(node, ast.Call):
        return _loaders_of_call(there, scanned, node, None)
    if isinstance(node, ast.Attribute) and is_own(node):
        kept = own_values(there, node, node.attr)
        only = kept[0] if len(kept) == 1 else None
        return _loaders_behind(there, scanned, only, depth - 1) if isinstance(only, ast.Name) else None
    bindings = there.lookup(node) if isinstance(node, ast.Name) else []
    only_binding = bindings[0] if len(bindings) == 1 else None
    if isinstance(only_binding, ast.arg):
        return _loaders_handed_in(there, scanned, only_binding, depth - 1)
    return _loaders_of_binding(there, scanned, only_binding, depth - 1) if isinstance(only_binding, ast.Name) else None


def _loaders_of_binding(there: Source, scanned: Source, binding: ast.Name, depth: int) -> Found | None:
    """What `loader = build(args)` or `train, test = build(args)` makes of a name."""
    statement, row = there.statement(binding), there.parent(binding)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    if statement.targets[0] is binding:
        return _loaders_behind(there, scanned, statement.value, depth)
    is_plain = isinstance(row, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in row.elts)
    if statement.targets[0] is not row or not is_plain or not isinstance(row, (ast.Tuple, ast.List)):
        return None
    place = next(n for n, element in enumerate(row.elts) if element is binding)
    value = statement.value
    return _loaders_of_call(there, scanned, value, (place, len(row.elts))) if isinstance(value, ast.Call) else None


def _loaders_of_call(there: Source, scanned: Source, call: ast.Call, place: tuple[int, int] | None) -> Found | None:
    """What a function of another file returns to a call, or the element at `place` of a row of that length."""
    found = _definition_meant(there, scanned, call.func)
    if found is None or not isinstance(found[1], FUNCTIONS):
        return None
    made = loaders_returned(found[0], found[1], place)
    return [MadeLoader(found[0], one, there, call, found[1]) for one in made] if made is not None else None


def _definition_meant(there: Source, scanned: Source, node: ast.expr) -> tuple[Source, ast.AST] | None:
    """What an expression names in another file of the project; of `from data import *` what only that can have bound."""
    neighbours, by = scanned.neighbours, None if there is scanned else there
    if neighbours is None:
        return None
    if dotted := there.qualified_name(node):
        return neighbours.definition_of(dotted, by)
    found = neighbours.bound_by_star(node.id, there) if isinstance(node, ast.Name) and not there.lookup(node) else None
    return (found[0], found[1][0]) if found is not None and len(found[1]) == 1 else None


def _loaders_handed_in(there: Source, scanned: Source, parameter: ast.arg, depth: int) -> Found | None:
    """What all calls in this file and in those that import it pass for a parameter; None where one passes another thing.

    `fit(model, loader)` that a script calls hands the loader on to `train_epoch(model, loader)` of its own file. For a method,
    every call of that name in the program that passes as much counts: `self.train_epoch(loader)` of its base.
    """
    function = there.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return None
    owner = there.parent(function)
    is_method = isinstance(owner, ast.ClassDef) and function.name != "__init__"
    calls = _calls_of_method(there, scanned, function) if is_method else _calls_of(there, scanned, function)
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][isinstance(owner, ast.ClassDef) :]
    place = names.index(parameter.arg) if parameter.arg in names else None
    found: Found = []
    for other, call in calls or ():
        given = argument(other, call, parameter.arg, place)
        made = _loaders_behind(other, scanned, given, depth) if isinstance(given, ast.expr) else None
        if made is None:
            return None
        found += made
    return found or None


def _calls_of(there: Source, scanned: Source, function: Function) -> Calls | None:
    """The calls of a function, or those that build an object of the class whose `__init__` it is; None if not all in sight."""
    if there is not scanned:
        return None
    own, owner = callers(there, function), there.parent(function)
    name = owner.name if isinstance(owner, ast.ClassDef) else function.name
    if not isinstance(owner, ast.ClassDef) and own and len(there.uses_of(function, name)) != len(own):
        return None
    calls = calls_in_importers(there, name)
    own_calls = [(there, call) for call in own]
    return own_calls + [(other, call) for other, call in calls if _is_imported(scanned, other, call.func)]


def _calls_of_method(there: Source, scanned: Source, method: Function) -> Calls | None:
    """The calls in the program by the name of a method that pass as much as it wants, whatever the object; None if too many."""
    own = callers(there, method)
    if scanned.neighbours is None:
        return None
    if own and there is scanned and not scanned.neighbours.is_called_by_importers(method.name):
        return [(there, call) for call in own]
    if method.decorator_list:
        return None
    files = scanned.neighbours.program_calling(method.name, lambda shape: fits(there, method, shape))
    if not files:
        return None
    others = {other.path: other for other in (*files, scanned, there)}
    return [
        (other, call)
        for other in others.values()
        for call in other.nodes(ast.Call)
        if isinstance(call.func, ast.Attribute)
        and last_name(call.func) == method.name
        and fits(there, method, shape_of(call))
    ]


def _is_imported(scanned: Source, other: Source, node: ast.expr) -> bool:
    neighbours, dotted = scanned.neighbours, other.qualified_name(node)
    if neighbours is None:
        return False
    if dotted is None and isinstance(node, ast.Name):
        return neighbours.is_taken_by_star(node.id, other)
    if dotted is None or not (dotted.startswith(".") or neighbours.is_own_module(dotted)):
        return False
    return neighbours.definition_of(dotted, other) is None  # else it is that of a third file
