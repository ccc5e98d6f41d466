"""Which function or class of a project a call means, of its own file or of another one from which it is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.names import last_name


def function_run(sources: Sequence[Source], source: Source, call: ast.Call) -> tuple[Source, Function] | None:
    """The function, with its file; None where the text does not say, as of a method of an object that is made elsewhere."""
    if (own := called_function(source, call)) is not None:
        return source, own
    found = [(each, node) for each, node in _imported_nodes(sources, source, call) if isinstance(node, FUNCTIONS)]
    return found[0] if len(found) == 1 else None


def class_made(sources: Sequence[Source], source: Source, call: ast.Call) -> ast.ClassDef | None:
    """The class of which a call makes an object; None where it is none of the project's, or the text does not say."""
    bound = source.lookup(call.func) if isinstance(call.func, ast.Name) else []
    found = [
        node
        for node in (*bound, *(node for _, node in _imported_nodes(sources, source, call)))
        if isinstance(node, ast.ClassDef)
    ]
    return found[0] if len(found) == 1 else None


def _imported_nodes(sources: Sequence[Source], source: Source, call: ast.Call) -> Iterator[tuple[Source, ast.stmt]]:
    """What files of the project have at their top level under the name that is called, where it is imported from them."""
    module, _, name = (source.qualified_name(call.func) or "").lstrip(".").rpartition(".")
    file = f"/{module.replace('.', '/')}"
    for each in sources:
        if module and f"/{each.path}".endswith((f"{file}.py", f"{file}/__init__.py")):
            for node in each.tree.body:
                if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name == name:
                    yield each, node


def parameters_of(function: Function) -> set[str]:
    """Names of what a function takes, without `*rest` and `**options`, under which nothing has a name of its own."""
    taken = function.args
    return {each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}


def with_bases(sources: Sequence[Source], definition: ast.ClassDef) -> set[str]:
    """The name of a class, and those of all that it derives from, as far as the files of the project have them."""
    bases: dict[str, set[str]] = {}
    for source in sources:
        for each in source.nodes(ast.ClassDef):
            bases.setdefault(each.name, set()).update(last_name(base) for base in each.bases)
    found, wanted = set[str](), {definition.name}
    while wanted:
        found |= wanted
        wanted = {base for name in wanted for base in bases.get(name, ())} - found
    return found
