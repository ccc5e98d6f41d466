"""Where a variable of a script is read: in its own function and in the functions of the file that it is handed to."""

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
