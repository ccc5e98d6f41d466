"""Where a variable of a script is read, in its own function and in those that it is handed to, and what has bound it there."""

from __future__ import annotations

import ast

from perfaudit.static.checks.data_parallel.program import Refused, argument_for, function_called
from perfaudit.static.source import Source


def all_uses(source: Source, name: ast.Name) -> list[ast.Name]:
    """Every read of a variable, those of the parameters that get it included; not the calls that hand it on.

    Raises Refused where a function that gets it binds the parameter again.
    """
    found: list[ast.Name] = []
    waiting: list[tuple[ast.AST, str]] = [(name, name.id)]
    known: set[int] = set()
    while waiting:
        binding, called = waiting.pop()
        if id(binding) in known:
            continue
        known.add(id(binding))
        for use in source.uses_of(binding, called):
            parameters = _parameters(source, use)
            for parameter in parameters:
                if len(source.bound_in(source.scope(parameter)).get(parameter.arg, [])) != 1:
                    raise Refused(f"`{parameter.arg}` is bound again in the function that gets it")
                waiting.append((parameter, parameter.arg))
            if not parameters:
                found.append(use)
    return found


def bindings_in_turn(source: Source, name: ast.Name, loop: ast.For) -> list[ast.AST]:
    """The nodes that may have bound a name that a turn of the loop reads.

    Where the turn surely binds it in front of the read, by the head of the loop or by an assignment straight in its body, no
    place outside of the loop is one of them: `for x, y in val_loader` says nothing of `for x, y in train_loader`.
    """
    bound, scope = source.lookup(name), source.scope(name)
    around = {id(each) for each in (name, *source.ancestors(name))}
    own = source.bound_in(scope).get(name.id, [])  # not those of a `global` of this function
    place = next((index for index, each in enumerate(loop.body) if id(each) in around), None)
    if place is None or not bound or own is not bound:
        return bound
    sure: list[ast.expr] = [loop.target]
    for statement in loop.body[:place]:
        sure += statement.targets if isinstance(statement, ast.Assign) else []
    parts = {id(part) for target in sure for part in ast.walk(target)}
    if not any(id(binding) in parts for binding in bound):
        return bound
    return [
        binding
        for binding in bound
        if source.scope(binding) is not scope or any(each is loop for each in source.ancestors(binding))
    ]


def _parameters(source: Source, use: ast.Name) -> list[ast.arg]:
    """The parameter of a function of this file for which a call passes this name; none where it is no such argument."""
    parent = source.parent(use)
    call = source.parent(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or call.func is use:
        return []
    function = function_called(source, call)
    if function is None:
        return []
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [parameter for parameter in arguments if argument_for(source, call, function, parameter) is use]
