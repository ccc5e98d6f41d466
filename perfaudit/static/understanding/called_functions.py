"""Which function of the same file a call runs, and who calls a function."""

from __future__ import annotations

import ast

from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import updates_weights
from perfaudit.static.understanding.names import last_name

_MAX_BASES = 4  # base classes looked through for a method


def called_function(source: Source, call: ast.Call) -> Function | None:
    """The function of this file that a call runs.

    A function by its name; a method by `self.name`, also of a base class in this file, or on a name bound once to an
    object of a class of this file; the closure of `optimizer.step(closure)`, and the one that a function of this file made
    (`step = make_step(model)`, then `step(x)`).
    """
    func = call.func
    if isinstance(func, ast.Name):
        candidates = source.lookup(func)
        if len(candidates) == 1 and isinstance(candidates[0], ast.Name):
            candidates = _closure_made(source, func)
    elif not isinstance(func, ast.Attribute):
        return None
    elif func.attr == "step" and len(call.args) == 1 and isinstance(call.args[0], ast.Name) and updates_weights(call):
        candidates = source.lookup(call.args[0])
    elif func.attr in _function_names(source):
        candidates = _method(source, _class_of(source, func.value), func.attr)
    else:
        return None
    only = candidates[0] if len(candidates) == 1 else None  # a name may have thousands
    return only if isinstance(only, FUNCTIONS) else None


def _closure_made(source: Source, name: ast.Name) -> list[ast.AST]:
    """The function inside a function of this file that the one call which binds a name returns."""
    made = assigned_once(source, name)
    makers = source.lookup(made.func) if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) else []
    maker = makers[0] if len(makers) == 1 else None
    if not isinstance(maker, FUNCTIONS) or maker.decorator_list or not isinstance(maker.body[-1], ast.Return):
        return []
    returned = [n for n in source.nodes(ast.Return) if source.enclosing(n, *FUNCTIONS, ast.Lambda) is maker]
    inner = returned[0].value if len(returned) == 1 else None
    return source.bound_in(maker).get(inner.id, []) if isinstance(inner, ast.Name) else []


def callers(source: Source, function: Function) -> tuple[ast.Call, ...]:
    """The calls in this file that surely run a function of it."""
    return _callers(source).get(id(function), ())


@remember
def _callers(source: Source) -> dict[int, tuple[ast.Call, ...]]:
    table: dict[int, tuple[ast.Call, ...]] = {}
    names = {definition.name for definition in source.definitions}
    for call in source.nodes(ast.Call):
        if last_name(call.func) in names and (function := called_function(source, call)) is not None:
            table[id(function)] = (*table.get(id(function), ()), call)
    return table


@remember
def calls_of_functions(source: Source) -> tuple[tuple[ast.Call, Function], ...]:
    """The calls of a file that run a function of it, each with that function."""
    called = ((call, called_function(source, call)) for call in source.nodes(ast.Call))
    return tuple((call, function) for call, function in called if function is not None)


def assigned_once(source: Source, name: ast.Name) -> ast.expr:
    """What the one plain assignment of a name gives it, else the name."""
    bindings = source.lookup(name)
    parent = source.parent(bindings[0]) if len(bindings) == 1 else None
    return parent.value if isinstance(parent, ast.Assign) and parent.targets[0] is bindings[0] else name


@remember  # asked for every call of a file
def _function_names(source: Source) -> frozenset[str]:
    awaited = (function.name for function in source.nodes(ast.AsyncFunctionDef))
    return frozenset((*awaited, *(function.name for function in source.nodes(ast.FunctionDef))))


def _class_of(source: Source, node: ast.expr) -> ast.ClassDef | None:
    """The class of this file that `self`, or a name bound once to `Class(...)`, is an object of."""
    if not isinstance(node, ast.Name):
        return None
    if node.id == "self":
        return source.enclosing(node, ast.ClassDef)
    value = assigned_once(source, node)
    return _class_named(source, value.func) if isinstance(value, ast.Call) else None


def _class_named(source: Source, node: ast.expr) -> ast.ClassDef | None:
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    return bindings[0] if len(bindings) == 1 and isinstance(bindings[0], ast.ClassDef) else None


def _method(source: Source, definition: ast.ClassDef | None, name: str) -> list[ast.AST]:
    """What binds a method's name in a class, else in the nearest of its bases in this file (first bases only)."""
    for _ in range(_MAX_BASES):
        if definition is None:
            return []
        if bound := source.bound_in(definition).get(name):
            return bound
        definition = _class_named(source, definition.bases[0]) if definition.bases else None
    return []
