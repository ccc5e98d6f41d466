"""How other files of the project call an evaluation: with gradients, or where they are off."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple, record
from perfaudit.static.checks.eval_without_no_grad.surroundings import gradients_may_be_off
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.elsewhere import base_elsewhere
from perfaudit.static.understanding.names import dotted_name, last_name

_TRAINS = regex(r"train|(^|_)fit($|_)|__init__|__call__")  # names of many things, most of them no evaluation
_MAX_FUNCTIONS = 8
_COUNTS = {"range", "xrange", "trange", "count"}
_TRAINING = {"backward", "step", "zero_grad"}


class CallsElsewhere(NamedTuple):
    """A file that calls an evaluation with gradients on and one that calls it with gradients off; "" where there is none."""

    on: str
    off: str


@record(frozen=True, slots=True)
class _Calls:
    """Whether a file calls one of these functions or methods, with gradients on or where they may be off."""

    functions: frozenset[str]
    methods: frozenset[str]
    is_off: bool

    def __call__(self, source: Source) -> bool:
        return any(gradients_may_be_off(source, call) is self.is_off for call in self._calls(source))

    def _calls(self, source: Source) -> Iterator[ast.Call]:
        names = self.functions | self.methods
        for call in source.nodes(ast.Call):
            if last_name(call.func) not in names or called_function(source, call) is not None:
                continue
            is_imported = bool(source.qualified_name(call.func)) or _comes_with_star(source, call.func)
            if is_imported or (isinstance(call.func, ast.Attribute) and call.func.attr in self.methods):
                yield call


def _comes_with_star(source: Source, node: ast.expr) -> bool:
    """Whether a name is nothing of this file's, which imports everything from some module: `from evaluation import *`."""
    if not isinstance(node, ast.Name) or source.lookup(node) or node.id in source.aliases:
        return False
    return any(alias.name == "*" for statement in source.nodes(ast.ImportFrom) for alias in statement.names)


@record(frozen=True, slots=True)
class CallsInLoops:
    """Whether a file calls a method of this name with arguments in a loop: it has none of that name itself."""

    method: str

    def __call__(self, source: Source) -> bool:
        return any(
            isinstance(call.func, ast.Attribute)
            and (call.args or call.keywords)
            and called_function(source, call) is None
            and source.enclosing(call, *LOOPS) is not None
            for call in source.calls(f".{self.method}")
        )


@record(frozen=True, slots=True)
class CallsForData:
    """Whether a file calls a function that it imports from a module of this name, for each item of some data."""

    module: str
    name: str

    def __call__(self, source: Source) -> bool:
        calls = (call for call in source.nodes(ast.Call) if last_name(call.func) == self.name)
        return any(
            (source.qualified_name(call.func) or "").split(".")[-2:] == [self.module, self.name]
            and is_run_for_data(source, call)
            for call in calls
        )


def is_run_for_data(source: Source, call: ast.Call) -> bool:
    """Whether a loop that goes through data, and trains nothing, makes a call with gradients on."""
    loop = source.enclosing(call, *LOOPS)
    if not isinstance(loop, ast.For) or gradients_may_be_off(source, call):
        return False
    called = {last_name(node.func) for node in walk(loop) if isinstance(node, ast.Call)}
    counts = {last_name(node.func) for node in walk(loop.iter) if isinstance(node, ast.Call)}
    return not counts & _COUNTS and not called & _TRAINING


def _methods_of_base_that_call(source: Source, function: Function) -> set[str]:
    """The methods by which a base class of another file runs what a class fills in: `validate` that calls `self._validate()`."""
    owner = source.parent(function)
    found = base_elsewhere(source, owner) if isinstance(owner, ast.ClassDef) and owner.bases else None
    if found is None:
        return set()
    there, base = found
    calls = [call for call in there.calls(f".{function.name}") if dotted_name(call.func) == f"self.{function.name}"]
    around = [there.enclosing(call, *FUNCTIONS) for call in calls]
    names = {method.name for method in around if isinstance(method, FUNCTIONS) and there.parent(method) is base}
    return {name for name in names if not _TRAINS.search(name)}


def calls_elsewhere(source: Source, functions: list[Function]) -> CallsElsewhere:
    """How files that import this one call some of its functions; they are found by name, and a method by that alone."""
    known = [f for f in functions if not _TRAINS.search(f.name)][:_MAX_FUNCTIONS]
    if source.neighbours is None or not known:
        return CallsElsewhere("", "")
    methods = frozenset(f.name for f in known if isinstance(source.parent(f), ast.ClassDef))
    methods |= {name for function in known for name in _methods_of_base_that_call(source, function)}
    plain = frozenset(
        f.name for f in known if not any(isinstance(a, (*FUNCTIONS, ast.ClassDef)) for a in source.ancestors(f))
    )
    names = plain | methods
    off = source.neighbours.some_importer(_Calls(plain, methods, is_off=True), calling=names)
    on = source.neighbours.some_importer(_Calls(plain, methods, is_off=False), calling=names) if off else ""
    return CallsElsewhere(Path(on).name, Path(off).name)
