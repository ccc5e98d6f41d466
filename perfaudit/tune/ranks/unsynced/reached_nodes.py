"""Code of a project that some of its statements may run, told by names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.names import last_name

_MAKES = {"__init__", "__new__", "__post_init__"}  # run where the class is named
_RUN_BY_LIBRARIES = {"forward"}


def reached_nodes(sources: Sequence[Source], source: Source, statements: Sequence[ast.stmt]) -> list[ast.AST]:
    """The nodes of these statements, and of the functions that they may run.

    A function counts as run where its name stands, as that of a property does; a constructor where its class is called; and what
    Python or torch runs (`__getitem__`, `forward`) always. So does one that is handed to anybody, as a hook is. Those that the
    statements lie in, or that call these, do not: they do not begin anew in the middle of themselves.
    """
    functions = _functions(sources)
    above = _names_above(sources, source, statements[0]) if statements else set()
    nodes = [node for statement in statements for node in ast.walk(statement)]
    names = _names_in(nodes) | set(_handed_on(sources, functions)) | _RUN_BY_LIBRARIES
    names |= {name for name in functions if name.startswith("__") and name not in _MAKES}
    seen, wanted = set[int](), names
    while wanted:
        more = list[ast.AST]()
        for name in wanted:
            for function in functions.get(name, []):
                if name not in above and id(function) not in seen:
                    seen.add(id(function))
                    more += ast.walk(function)
        nodes += more
        wanted = _names_in(more) - names
        names |= wanted
    return nodes


def _functions(sources: Sequence[Source]) -> dict[str, list[ast.AST]]:
    """Functions by the names that run them: a constructor by its class, as `Net()`."""
    found: dict[str, list[ast.AST]] = {}
    for source in sources:
        for each in source.definitions:
            if not isinstance(each, FUNCTIONS):
                continue
            owner = source.parent(each)
            name = f"{owner.name}()" if each.name in _MAKES and isinstance(owner, ast.ClassDef) else each.name
            found.setdefault(name, []).append(each)
    return found


def _names_above(sources: Sequence[Source], source: Source, statement: ast.stmt) -> set[str]:
    """Names of the functions around a statement, and of those that call them."""
    known = {each.name for each in source.ancestors(statement) if isinstance(each, FUNCTIONS)}
    wanted = set(known)
    while wanted:
        found = {function.name for each in sources for function in _callers(each, wanted)}
        wanted = found - known
        known |= found
    return known


def _callers(source: Source, names: set[str]) -> Iterator[Function]:
    for call in source.nodes(ast.Call):
        if last_name(call.func) in names:
            yield from (each for each in source.ancestors(call) if isinstance(each, FUNCTIONS))


def _handed_on(sources: Sequence[Source], functions: dict[str, list[ast.AST]]) -> Iterator[str]:
    """Names of functions that stand somewhere without a call: what gets them may run them at any time."""
    for source in sources:
        for node in (*source.nodes(ast.Name), *source.nodes(ast.Attribute)):
            if (name := last_name(node)) in functions:
                parent = source.parent(node)
                is_called = isinstance(parent, ast.Call) and parent.func is node
                if not is_called and not isinstance(parent, (ast.ClassDef, ast.Attribute, ast.arg)):
                    yield name


def _names_in(nodes: Sequence[ast.AST]) -> set[str]:
    called = {f"{last_name(node.func)}()" for node in nodes if isinstance(node, ast.Call)}
    return {last_name(node) for node in nodes} - {""} | called
