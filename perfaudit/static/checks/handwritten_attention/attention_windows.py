"""Whether queries see the positions of a small window only, by the sizes that a file gives its windows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import constant

FEW = 64  # positions, 8 by 8: readers call the windows of 49 and 64 positions of vision transformers hardly worth a change
_WINDOW = regex(r"^(self_)?(win|window)(_?size)?$|^ws$")


def is_in_small_windows(source: Source, function: Function) -> bool:
    """Whether a class attends in square windows, as it is built with their size, and all sizes in its file are small."""
    owner = source.enclosing(function, ast.ClassDef)
    if not isinstance(owner, ast.ClassDef) or not _is_built_with_window(owner):
        return False
    if not any(_is_area(node) for node in ast.walk(owner)):
        return False
    sizes = _window_sizes(source)
    return bool(sizes) and all(size is not None and size * size <= FEW for size in sizes)


def _is_built_with_window(owner: ast.ClassDef) -> bool:
    builders = (node for node in owner.body if isinstance(node, FUNCTIONS) and node.name == "__init__")
    return any(_is_window(argument.arg) for builder in builders for argument, _ in _parameters(builder))


def _is_window(name: str) -> bool:
    return _WINDOW.match(name.lower()) is not None


def _is_area(node: ast.AST) -> bool:
    """`window[0] * window[1]`, `(2 * window - 1) ** 2`: the window has two sides."""
    if not isinstance(node, ast.BinOp) or not _names_window(node.left):
        return False
    return isinstance(node.op, ast.Pow) or (isinstance(node.op, ast.Mult) and _names_window(node.right))


def _names_window(node: ast.AST) -> bool:
    return any(isinstance(n, (ast.Name, ast.Attribute)) and _is_window(last_name(n)) for n in ast.walk(node))


@lru_cache(maxsize=2)
def _window_sizes(source: Source) -> tuple[int | None, ...]:
    """The sides of windows that parameters default to and calls give in a file; None for one that is not known.

    What hands a window on, `window_size=self.window_size`, gives none of its own.
    """
    given: list[ast.expr] = []
    functions: list[Function] = [*source.nodes(ast.FunctionDef), *source.nodes(ast.AsyncFunctionDef)]
    for function in functions:
        given += [value for argument, value in _parameters(function) if value and _is_window(argument.arg)]
    for call in source.nodes(ast.Call):
        given += [k.value for k in call.keywords if k.arg and _is_window(k.arg)]
        if last_name(call.func) == "add_argument" and call.args and isinstance(call.args[0], ast.Constant):
            option = str(call.args[0].value).lstrip("-").replace("-", "_")
            given += [k.value for k in call.keywords if k.arg == "default" and _is_window(option)]
    return tuple(size for node in given if not _names_window(node) for size in _sides(source, node))


def _sides(source: Source, node: ast.expr) -> Iterator[int | None]:
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from _sides(source, item)
        return
    value = constant(source, node)
    yield value if isinstance(value, int) and not isinstance(value, bool) else None


def _parameters(function: Function) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The parameters of a function, each with its default."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    yield from zip(plain, defaults, strict=True)
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
