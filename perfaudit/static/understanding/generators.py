"""Generators of the project that yield, one by one, what they are given: `log_every` of a logger, a loader kept in step."""

from __future__ import annotations

import ast
import builtins

from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.elsewhere import Elsewhere, generator_elsewhere
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value


@remember  # several rules ask for the same loops
def iterable_behind(source: Source, call: ast.Call) -> ast.expr | None:
    """`loader` of `logger.log_every(loader, 10)`, where that is a generator that yields its items as they are."""
    if not call.args or (isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id)):
        return None
    own = called_function(source, call)
    if own is not None and own.decorator_list:  # it may be wrapped in what moves or changes the items
        return None
    there = Elsewhere(source, own, call) if own is not None else generator_elsewhere(source, call)
    parameter = _parameter_yielded(there.source, there.function) if there is not None else ""
    return dict(there.named_arguments).get(parameter) if there is not None and parameter else None


def _parameter_yielded(source: Source, function: Function) -> str:
    """The parameter whose items are all that a function yields, "" for any other function."""
    nodes = [node for node in ast.walk(function) if source.scope(node) is function]
    yields = [node.value for node in nodes if isinstance(node, (ast.Yield, ast.YieldFrom))]
    if not yields:
        return ""
    if any(isinstance(node, ast.YieldFrom) for node in nodes):
        return _parameter_passed_through(source, function, nodes)
    names = {value.id for value in yields if isinstance(value, ast.Name)}
    if len(names) != 1 or not all(isinstance(value, ast.Name) for value in yields):
        return ""
    name = names.pop()
    uses = [n for n in nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    if not all(_leaves_as_it_is(source, use) for use in uses):
        return ""
    taken = {_taken_from(source, binding) for binding in source.bound_in(function).get(name, [])}
    only = taken.pop() if len(taken) == 1 else ""
    bound = source.bound_in(function).get(only, [])
    return only if len(bound) == 1 and isinstance(bound[0], ast.arg) else ""


def _parameter_passed_through(source: Source, function: Function, nodes: list[ast.AST]) -> str:
    """The parameter of a function that only yields from it, `while True: yield from loader`; "" for any other function."""
    if any(isinstance(node, ast.Yield) for node in nodes):
        return ""
    names = {_name_of(node.value) for node in nodes if isinstance(node, ast.YieldFrom)}
    only = names.pop() if len(names) == 1 else ""
    bound = source.bound_in(function).get(only, [])
    return only if len(bound) == 1 and isinstance(bound[0], ast.arg) else ""


def _leaves_as_it_is(source: Source, use: ast.Name) -> bool:
    """Whether a use of an item yields it, or only asks about it; any other may change it: `batch[key] = batch[key].cuda()`."""
    parent = source.parent(use)
    if isinstance(parent, (ast.Yield, ast.Compare, ast.BoolOp, ast.UnaryOp)):
        return True
    is_length = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len"
    return is_length or (isinstance(parent, (ast.If, ast.While)) and parent.test is use)


def _taken_from(source: Source, binding: ast.AST) -> str:
    """The name of what a loop over it, or `next(iter(it))`, binds a name to the items of; "" for another binding."""
    parent = source.parent(binding)
    if isinstance(parent, ast.For) and parent.target is binding:
        return _name_of(parent.iter)
    if isinstance(parent, ast.Tuple) and isinstance(loop := source.parent(parent), ast.For) and loop.target is parent:
        is_counted = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "enumerate" and loop.iter.args
        is_item = len(parent.elts) == 2 and parent.elts[1] is binding
        return _name_of(loop.iter.args[0]) if is_counted and is_item and isinstance(loop.iter, ast.Call) else ""
    value = assigned_value(source, binding)
    if not isinstance(value, ast.Call) or last_name(value.func) != "next" or not value.args:
        return ""
    passes = source.lookup(value.args[0]) if isinstance(value.args[0], ast.Name) else []
    begun = {_behind_iter(assigned_value(source, one)) for one in passes}
    return begun.pop() if len(begun) == 1 else ""


def _name_of(over: ast.expr) -> str:
    return over.id if isinstance(over, ast.Name) else ""


def _behind_iter(value: ast.expr | None) -> str:
    """`x` of `iter(x)`."""
    is_pass = isinstance(value, ast.Call) and last_name(value.func) == "iter" and len(value.args) == 1
    return _name_of(value.args[0]) if is_pass and isinstance(value, ast.Call) else ""
