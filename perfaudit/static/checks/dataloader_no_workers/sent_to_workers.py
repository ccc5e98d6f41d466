"""What a loader sends to its workers, and that cannot be sent: closures, and what a notebook defines."""

from __future__ import annotations

import ast

from perfaudit.records import NamedTuple
from perfaudit.static.checks.dataloader_no_workers.samples import function_named
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.values import argument, resolve

COLLATE = 6  # position of the parameter in DataLoader.__init__ of every torch since 1.0


class Unpicklable(NamedTuple):
    """What a spawned worker cannot be sent, in words, and the function where it is one that may be moved."""

    words: str
    function: Function | ast.Lambda | None = None
    name: str = "collate"  # of the function that a lambda becomes


def unpicklable(source: Source, call: ast.Call) -> Unpicklable | None:
    """A lambda, function or class that has no name in its module, and that a loader's workers need; None without one."""
    collate, dataset = argument(source, call, "collate_fn", COLLATE), argument(source, call, "dataset", 0)
    if isinstance(collate, ast.expr):
        node = resolve(source, collate) or collate
        if isinstance(node, ast.Lambda):
            return Unpicklable("the lambda that collates", node)
        if isinstance(function := _bound_inside(source, node), FUNCTIONS):
            return Unpicklable(f"`{function.name}`", function)
        if isinstance(node, ast.Call) and _makes_closure(source, node):
            return Unpicklable(f"the function that `{source.brief(node)}` returns")
    built = resolve(source, dataset) if isinstance(dataset, ast.expr) else None
    if isinstance(built, ast.Call):
        if isinstance(definition := _bound_inside(source, built.func), ast.ClassDef):
            return Unpicklable(f"`{definition.name}`")
        given = [*built.args, *(keyword.value for keyword in built.keywords)]
        transforms = [node for value in given for node in ast.walk(resolve(source, value) or value)]
        lambdas = [node for node in transforms if isinstance(node, ast.Lambda)]
        if lambdas:
            return Unpicklable("the lambda in its transforms", lambdas[0] if len(lambdas) == 1 else None, "transform")
    return None


def _makes_closure(source: Source, call: ast.Call) -> bool:
    """Whether a call returns a function that is defined where it runs; so does a `functools.partial` of one."""
    if source.qualified_name(call.func) == "functools.partial" and call.args:
        return isinstance(call.args[0], ast.Lambda) or _bound_inside(source, call.args[0]) is not None
    found = function_named(source, call.func)
    if found is None or not isinstance(found[1], FUNCTIONS):
        return False
    inside, maker = found
    returned = [n.value for n in ast.walk(maker) if isinstance(n, ast.Return) and inside.scope(n) is maker]
    return any(
        isinstance(value, ast.Lambda) or (value is not None and isinstance(_bound_inside(inside, value), FUNCTIONS))
        for value in returned
    )


def of_notebook(source: Source, call: ast.Call) -> str:
    """The function or class that a notebook itself defines and a loader's workers need; "" in a file, and without one.

    A spawned process has no notebook to import it from.
    """
    if not source.path.endswith(".ipynb"):
        return ""
    dataset, collate = argument(source, call, "dataset", 0), argument(source, call, "collate_fn", COLLATE)
    asked = [resolve(source, node) or node for node in (collate, dataset) if isinstance(node, ast.expr)]
    names = (node.func if isinstance(node, ast.Call) else node for node in asked)
    bound = (source.lookup(name) for name in names if isinstance(name, ast.Name))
    definitions = [found[0] for found in bound if len(found) == 1]
    return next((d.name for d in definitions if isinstance(d, (*FUNCTIONS, ast.ClassDef))), "")


def _bound_inside(source: Source, node: ast.expr) -> ast.AST | None:
    """The function or class that a name stands for, where it is defined inside a function."""
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    found = bindings[0] if len(bindings) == 1 else None
    is_definition = isinstance(found, (*FUNCTIONS, ast.ClassDef))
    return found if found is not None and is_definition and source.enclosing(found, *FUNCTIONS) is not None else None
