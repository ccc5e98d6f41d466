"""Functions in other files of the project that a call runs: helpers, methods of a trainer, the `forward` of a loss."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.context import assigned_once, called_function, last_name
from perfaudit.static.understanding.members import is_own, own_values

_MAX_BASES = 4  # classes looked through for a method
_RUNS = ("forward", "__call__")  # what calling an object runs
_HARMLESS = {"staticmethod", "classmethod", "no_grad", "inference_mode"}  # decorators that run what they decorate
_PASSED_ON = {"to", "cuda", "train", "eval", "half", "float", "requires_grad_"}  # methods that return their own object


class Elsewhere(NamedTuple):
    """A function of another file and the call that runs it; `source` is that file, which knows nothing of its neighbours."""

    source: Source
    function: Function
    call: ast.Call

    @property
    def owner(self) -> ast.ClassDef | None:
        """The class of a method."""
        parent = self.source.parent(self.function)
        return parent if isinstance(parent, ast.ClassDef) else None

    @property
    def given(self) -> Iterator[tuple[str, ast.expr]]:
        """The parameters that the call passes by position or name, each with what it passes; not `self`."""
        names = [a.arg for a in (*self.function.args.posonlyargs, *self.function.args.args)]
        is_static = any(last_name(decorator) == "staticmethod" for decorator in self.function.decorator_list)
        if self.owner is not None and not is_static:
            names = names[1:]
        if not any(isinstance(argument, ast.Starred) for argument in self.call.args):
            yield from zip(names, self.call.args, strict=False)
        yield from ((keyword.arg, keyword.value) for keyword in self.call.keywords if keyword.arg is not None)


def called_elsewhere(source: Source, call: ast.Call) -> Elsewhere | None:
    """The function of another file that a call surely runs; None for one of this file, of a library, or that is not clear."""
    if source.neighbours is None or called_function(source, call) is not None:
        return None
    found = _defined(source, call.func)
    if found is not None and isinstance(found[1], FUNCTIONS):
        return _plain(found[0], found[1], call)
    if isinstance(call.func, ast.Attribute):
        method, owner = call.func.attr, _class_of(source, call.func.value)
        return _method(owner, (method,), call) if owner is not None else None
    owner = _class_of(source, call.func)
    return _method(owner, _RUNS, call) if owner is not None else None


Definition = tuple[Source, ast.AST]


def _defined(source: Source, node: ast.AST | None) -> Definition | None:
    """The definition in another file that an imported name stands for."""
    dotted = source.qualified(node) or ""
    if source.neighbours is None or not dotted or dotted.partition(".")[0] == "torch":
        return None
    return source.neighbours.defined(dotted)


def _class_of(source: Source, node: ast.expr) -> Definition | None:
    """The class of another file whose object an expression is: a name or attribute that is bound once, to `Class(...)`.

    Of `self`, the base of its class, where that is in another file.
    """
    if isinstance(node, ast.Name) and node.id == "self":
        own = source.enclosing(node, ast.ClassDef)
        return _class(_defined(source, own.bases[0])) if own is not None and own.bases else None
    value: ast.expr | None = None
    if isinstance(node, ast.Name):
        value = assigned_once(source, node)
    elif is_own(node) and isinstance(node, ast.Attribute):
        values = own_values(source, node, node.attr)
        value = values[0] if len(values) == 1 else None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _PASSED_ON:
        value = value.func.value
    return _class(_defined(source, value.func)) if isinstance(value, ast.Call) else None


def _class(found: Definition | None) -> Definition | None:
    return found if found is not None and isinstance(found[1], ast.ClassDef) else None


def _method(owner: Definition, names: tuple[str, ...], call: ast.Call) -> Elsewhere | None:
    """The method of a class, or of the nearest of its bases in the same file."""
    source, definition = owner
    for _ in range(_MAX_BASES):
        if not isinstance(definition, ast.ClassDef):
            return None
        bound = source.bound_in(definition)
        for name in names:
            if found := bound.get(name):
                return _plain(source, found[0], call) if len(found) == 1 else None
        base = definition.bases[0] if definition.bases else None
        above = source.lookup(base) if isinstance(base, ast.Name) else []
        definition = above[0] if len(above) == 1 else source.tree
    return None


def _plain(source: Source, function: ast.AST, call: ast.Call) -> Elsewhere | None:
    """The function, unless a decorator may run it otherwise or it is a generator, which runs when somebody asks."""
    if not isinstance(function, FUNCTIONS):
        return None
    decorators = [last_name(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list]
    if not _HARMLESS.issuperset(decorators) or any(
        isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(function)
    ):
        return None
    return Elsewhere(source, function, call)
