"""Which function of a project a call runs, of its own file or of another one from which it is imported."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.called_functions import called_function


def function_run(sources: Sequence[Source], source: Source, call: ast.Call) -> tuple[Source, Function] | None:
    """The function, with its file; None where the text does not say, as of a method of an object that is made elsewhere."""
    if (own := called_function(source, call)) is not None:
        return source, own
    module, _, name = (source.qualified_name(call.func) or "").lstrip(".").rpartition(".")
    file = f"/{module.replace('.', '/')}"
    found = [
        (each, function)
        for each in sources
        if module and f"/{each.path}".endswith((f"{file}.py", f"{file}/__init__.py"))
        for function in each.tree.body
        if isinstance(function, FUNCTIONS) and function.name == name
    ]
    return found[0] if len(found) == 1 else None


def parameters_of(function: Function) -> set[str]:
    """Names of what a function takes, without `*rest` and `**options`, under which nothing has a name of its own."""
    taken = function.args
    return {each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}
