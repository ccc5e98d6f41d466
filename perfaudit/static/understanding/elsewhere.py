"""Functions in other files of the project that a call runs: helpers, methods of a trainer, the `forward` of a loss."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import NamedTuple

from perfaudit.static.project import Neighbours
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.understanding.context import (
    EVALUATION_NAME,
    assigned_once,
    called_function,
    in_no_grad,
    last_name,
    leaves_step,
    runs_each_time,
    runs_in_any_case,
)
from perfaudit.static.understanding.members import is_own, own_values

_MAX_BASES = 4  # classes looked through for a method
_RUNS = ("forward", "__call__")  # what calling an object runs
_HARMLESS = {"staticmethod", "classmethod", "no_grad", "inference_mode"}  # decorators that run what they decorate
_PASSED_ON = {"to", "cuda", "train", "eval", "half", "float", "requires_grad_"}  # methods that return their own object


class Elsewhere(NamedTuple):
    """A function of another file and the call that runs it; `source` is that file, which knows nothing of its neighbours.

    caller: the function of another file that has the call; None for a call in the file that is looked at.
    """

    source: Source
    function: Function
    call: ast.Call
    caller: Elsewhere | None = None

    @property
    def way(self) -> str:
        """By what call a function two calls deep is reached, for messages: ", which `step` calls"; else ""."""
        return f", which `{self.caller.function.name}` calls" if self.caller is not None else ""

    @property
    def outermost(self) -> Elsewhere:
        """The function that a call in the file that is looked at runs: this one, or the one that calls it."""
        return self.caller or self

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


@functools.lru_cache(maxsize=32)  # several rules ask for the same code
def called_each_step(source: Source, root: Loop | Function) -> tuple[Elsewhere, ...]:
    """The functions of other files that a loop, or a function that it calls, runs each time, in the order of the calls."""
    calls = [node for part in root.body for node in ast.walk(part) if isinstance(node, ast.Call)]
    found = (called_elsewhere(source, call) for call in calls if runs_each_time(source, call, root))
    return tuple(there for there in found if there is not None and not evaluates_elsewhere(there))


def called_from(source: Source, there: Elsewhere) -> Iterator[Elsewhere]:
    """The functions that a function of another file runs in any case: of its own file, or of a third one.

    A method of `self` is its class' own only where no other class in sight has a method of that name. What is called in a
    loop without gradients evaluates.
    """
    if source.neighbours is None or leaves_step(there.function):
        return
    for call in (node for part in there.function.body for node in ast.walk(part) if isinstance(node, ast.Call)):
        function = called_function(there.source, call)
        if function is None:
            further = _called(there.source, call, source.neighbours)
        else:
            further = _plain(there.source, function, call)
        if further is None or further.function is there.function or evaluates_elsewhere(further):
            continue
        if _is_own_method(call) and not _is_only_one(further.function, source, there.source, further.source):
            continue
        if there.source.enclosing(call, *LOOPS, within=there.function) and in_no_grad(there.source, call):
            continue
        if runs_in_any_case(there.source, call, there.function):
            yield further._replace(caller=there)


def evaluates_elsewhere(there: Elsewhere) -> bool:
    """Whether a function of another file is by its name no part of a step, or puts a model into eval mode."""
    if EVALUATION_NAME.search(there.function.name.lower()):
        return True
    return any(last_name(n.func) == "eval" for n in ast.walk(there.function) if isinstance(n, ast.Call))


def _is_own_method(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "self"


def _is_only_one(method: Function, *sources: Source) -> bool:
    """Whether no other function in these files has the name of a method, which may be that of a subclass."""
    return not any(
        definition.name == method.name and definition is not method
        for source in sources
        for definition in source.definitions
    )


def called_elsewhere(source: Source, call: ast.Call) -> Elsewhere | None:
    """The function of another file that a call surely runs; None for one of this file, of a library, or that is not clear."""
    if source.neighbours is None or called_function(source, call) is not None:
        return None
    return _called(source, call, source.neighbours)


def _called(source: Source, call: ast.Call, neighbours: Neighbours) -> Elsewhere | None:
    found = _defined(source, call.func, neighbours)
    if found is not None and isinstance(found[1], FUNCTIONS):
        return _plain(found[0], found[1], call)
    if isinstance(call.func, ast.Attribute):
        method, owner = call.func.attr, _class_of(source, call.func.value, neighbours)
        return _method(owner, (method,), call) if owner is not None else None
    owner = _class_of(source, call.func, neighbours)
    return _method(owner, _RUNS, call) if owner is not None else None


Definition = tuple[Source, ast.AST]


def _defined(source: Source, node: ast.AST | None, neighbours: Neighbours) -> Definition | None:
    """The definition in another file that an imported name stands for."""
    dotted = source.qualified(node) or ""
    if not dotted or dotted.partition(".")[0] == "torch":
        return None
    return neighbours.defined(dotted, None if source.neighbours is neighbours else source)


def _class_of(source: Source, node: ast.expr, neighbours: Neighbours) -> Definition | None:
    """The class of another file whose object an expression is: a name or attribute that is bound once, to `Class(...)`.

    Of `self`, the base of its class, where that is in another file.
    """
    if isinstance(node, ast.Name) and node.id == "self":
        own = source.enclosing(node, ast.ClassDef)
        return _class(_defined(source, own.bases[0], neighbours)) if own is not None and own.bases else None
    value: ast.expr | None = None
    if isinstance(node, ast.Name):
        value = assigned_once(source, node)
    elif is_own(node) and isinstance(node, ast.Attribute):
        values = own_values(source, node, node.attr)
        value = values[0] if len(values) == 1 else None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _PASSED_ON:
        value = value.func.value
    return _class(_defined(source, value.func, neighbours)) if isinstance(value, ast.Call) else None


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
