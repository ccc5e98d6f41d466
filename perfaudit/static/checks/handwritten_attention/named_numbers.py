"""Numbers that a file gives to what has a certain name: a default, an argument, an option, an entry of a configuration."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import constant


def values_named(source: Source, pattern: re.Pattern[str]) -> list[ast.expr]:
    """What parameters of these names default to, and what calls, options of the command line and dicts give them."""
    given: list[ast.expr] = []
    functions: list[Function] = [*source.nodes(ast.FunctionDef), *source.nodes(ast.AsyncFunctionDef)]
    for function in functions:
        given += [value for parameter, value in parameters(function) if value and pattern.match(parameter.arg.lower())]
    for call in source.nodes(ast.Call):
        given += [k.value for k in call.keywords if k.arg and pattern.match(k.arg.lower())]
        if last_name(call.func) == "add_argument" and call.args and isinstance(call.args[0], ast.Constant):
            option = str(call.args[0].value).lstrip("-").replace("-", "_")
            given += [k.value for k in call.keywords if k.arg == "default" and pattern.match(option.lower())]
    for table in source.nodes(ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and pattern.match(key.value.lower()):
                given.append(value)
    return given


def numbers_in(source: Source, node: ast.expr) -> Iterator[int | None]:
    """The whole numbers of a value, those of a tuple one by one; None for what is not known."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from numbers_in(source, item)
        return
    value = constant(source, node)
    yield value if isinstance(value, int) and not isinstance(value, bool) else None


def parameters(function: Function) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The parameters of a function, each with its default."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    yield from zip(plain, defaults, strict=True)
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
