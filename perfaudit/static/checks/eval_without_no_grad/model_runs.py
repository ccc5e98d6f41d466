"""Calls that run a model, and whether they surely record a graph."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TypeVar

from perfaudit.expressions import regex
from perfaudit.static.checks.eval_without_no_grad.eval_mode import handed_name, model_name
from perfaudit.static.checks.eval_without_no_grad.surroundings import plain_decorators, plain_surroundings
from perfaudit.static.checks.eval_without_no_grad.wanted_gradients import GRADIENT
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import NO_GRAD, SET_GRAD
from perfaudit.static.understanding.same_memory import VARIABLE

LoopT = TypeVar("LoopT", bound=Loop)
_LAYER = r"(\w+_)?(embeddings?|attention|lstm|gru|classifier|fc)\d*"
LAYER = regex(_LAYER)  # of a model that is run by itself: `decoder.embedding(words)`
# Of a part too, as `model.Q(x)` of a model that keeps its parts under capital letters; a word may be the name of any method.
FORWARD = regex(
    r"__call__|(\w+_)?forward(_\w+)?|extract_features?|encoder|decoder|backbone|decode_step|[A-Z]|" + _LAYER
)


def runs_model(source: Source, call: ast.Call, model: str, ways: frozenset[str] = frozenset()) -> bool:
    """Whether a call is `model(x)`, or one of a function of this file that gets the model and calls it.

    A model has further ways to be run by name, `model.forward_lips(x)`, and `ways` are methods of its class that run it. A
    method of an object runs the model that the object keeps.
    """
    return _is_run(call, model, ways) or bool(runs_inside(source, call, model, ways))


def runs_inside(source: Source, call: ast.Call, model: str, ways: frozenset[str] = frozenset()) -> list[ast.Call]:
    """The runs of the model in the function of this file that a call runs: which gets it, or takes it from around itself."""
    function = called_function(source, call)
    if function is None:
        return []
    if model.startswith("self.") and isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) == "self":
        names = {model}
    else:
        parameters = [a.arg for a in function.args.args]
        if isinstance(call.func, ast.Attribute):
            parameters = parameters[1:]
        given = [*zip(parameters, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
        names = {name for name, value in given if name and handed_name(value) == model}
        if not names and has_same(source, call, function, model):
            names = {model}
    return [n for name in names for n in walk(function) if isinstance(n, ast.Call) and _is_run(n, name, ways)]


def by_models(source: Source, loops: Iterable[LoopT]) -> dict[str, list[LoopT]]:
    """Loops by the name of each model that they may run, so that only few are asked about a model: see `runs_model`.

    Those are the names that they call or hand to a function of this file, and what such a function calls.
    """
    found: dict[str, list[LoopT]] = {}
    for loop in loops:
        names: set[str] = set()
        for call in (node for node in walk(loop) if isinstance(node, ast.Call)):
            function = called_function(source, call)
            called = [call, *(n for n in walk(function) if isinstance(n, ast.Call))] if function is not None else [call]
            names.update(name for each in called for name in _owners(model_name(each.func)))
            if function is not None:
                names.update(handed_name(value) for value in (*call.args, *(k.value for k in call.keywords)))
        for name in names - {""}:
            found.setdefault(name, []).append(loop)
    return found


def _owners(called: str) -> tuple[str, ...]:
    """What a call may run: `net.module`, which is `net` as well, or a method of it."""
    return (called, called.rpartition(".")[0])


def has_same(source: Source, call: ast.Call, function: Function, name: str) -> bool:
    """Whether a name stands for the same in a function as where it is called: one that both take from around them."""
    if name in source.bound_in(function):
        return False
    return name.isidentifier() and _scope_of(source, call, name) is _scope_of(source, function, name) is not None


def _scope_of(source: Source, node: ast.AST, name: str) -> ast.AST | None:
    """The function around a node, or the module, that binds a name."""
    scopes = (a for a in source.ancestors(node) if isinstance(a, (*FUNCTIONS, ast.Module)))
    return next((scope for scope in scopes if name in source.bound_in(scope)), None)


def _is_run(call: ast.Call, model: str, ways: frozenset[str]) -> bool:
    called = model_name(call.func)
    if called in (model, f"{model}.module"):
        return True
    way = called.rpartition(".")[2]
    return called == f"{model}.{way}" and (bool(FORWARD.fullmatch(way)) or way in ways)


def records_graph(source: Source, run: ast.Call) -> bool:
    """Whether the forward pass provably records gradients, in this place and inside the function that is called."""
    function = called_function(source, run)
    if function is not None and (not plain_decorators(function) or switches_gradients(source, function)):
        return False
    return plain_surroundings(source, run)


def switches_gradients(source: Source, function: Function) -> bool:
    nodes = [n for n in walk(function) if isinstance(n, (ast.Name, ast.Attribute))]
    return any(
        source.qualified_name(node) in NO_GRAD | SET_GRAD
        or (GRADIENT.search(last_name(node)) and source.qualified_name(source.parent(node)) != VARIABLE)
        for node in nodes
    )
