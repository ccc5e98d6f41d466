"""How a DataLoader is built: by a base class that nobody uses, twice, anew in each turn of a loop, of a class named by a text."""

from __future__ import annotations

import ast

from perfaudit.static.source import LOOPS, Source
from perfaudit.static.understanding.called_functions import assigned_once
from perfaudit.static.understanding.calls_by_name import calls_by_derived, is_built
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import Argument, argument


def is_of_base_nobody_builds(source: Source, call: ast.Call) -> bool:
    """Whether a class of loaders unpacks its own options, `**self.options`, and is not built, nor a class derived from it.

    A template's base class that a project has left behind.
    """
    owner = source.enclosing(call, ast.ClassDef)
    dataset = argument(source, call, "dataset", 0)
    bindings = source.lookup(dataset) if isinstance(dataset, ast.Name) else []
    is_handed_in = any(isinstance(binding, ast.arg) for binding in bindings)
    if not isinstance(owner, ast.ClassDef) or not _unpacks_own(call) or not is_handed_in:
        return False
    return not is_built(source, owner.name) and not calls_by_derived(source, owner.name)


def repeats_constructor(source: Source, call: ast.Call) -> bool:
    """Whether a method of a class of loaders builds another one of the options with which its constructor builds this one.

    `DataLoader(sampler=..., **self.options)` beside `super().__init__(sampler=..., **self.options)`, which is told already.
    """
    owner, own = source.enclosing(call, ast.ClassDef), _unpacks_own(call)
    if not own or not isinstance(owner, ast.ClassDef) or last_name(call.func) == "__init__":
        return False
    above = [c for c in source.nodes(ast.Call) if last_name(c.func) == "__init__" and _unpacks_own(c) == own]
    return any(source.enclosing(each, ast.ClassDef) is owner for each in above)


def _unpacks_own(call: ast.Call) -> str:
    """What a call unpacks of its object: "self.options"; "" for nothing."""
    names = [dotted_name(keyword.value) for keyword in call.keywords if keyword.arg is None]
    return next((name for name in names if name.startswith("self.")), "")


def is_made_by_eval(source: Source, dataset: Argument) -> bool:
    """Whether the class of the dataset is named by a text, `eval(name)(...)`: what its samples cost, nobody can read."""
    value = assigned_once(source, dataset) if isinstance(dataset, ast.Name) else dataset
    made = value.func if isinstance(value, ast.Call) else None
    return isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "eval"


def is_made_anew(source: Source, call: ast.Call, dataset: Argument) -> bool:
    """Whether a loop builds the loader, each time over data that a call in the same turn has made: workers start each time."""
    loop = source.enclosing(call, *LOOPS)
    if not isinstance(dataset, ast.Name) or not isinstance(loop, LOOPS):
        return False
    bindings = source.lookup(dataset)
    statements = [source.statement(binding) for binding in bindings if isinstance(binding, ast.Name)]
    return bool(statements) and all(
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and source.enclosing(statement, *LOOPS) is loop
        and isinstance(statement.targets[0], ast.Tuple)
        for statement in statements
    )
