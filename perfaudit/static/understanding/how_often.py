"""How often code runs in a training: on every step, often, seldom."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import lies_in
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.demonstrations import is_shown_only
from perfaudit.static.understanding.epochs import counts_epochs
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.step_loops import StepLoop, step_loops

STEP_METHODS = {"forward", "training_step"}
_OFTEN = {*STEP_METHODS, "__getitem__", "__call__", "collate", "collate_fn"}
_ONCE = {"__init__", "__post_init__", "main", "setup"}
_ITERATED = (*LOOPS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_CALLS_OUTWARDS = 4


def runs_every_step(source: Source, node: ast.AST) -> bool:
    """Whether the node stands in a training loop, in a function it calls, or in `forward` or `training_step`.

    The `forward` of a class under `if __name__ == "__main__":` is a demonstration's, unless a loop there trains it.
    """
    around = {id(ancestor) for ancestor in source.ancestors(node)}
    in_step_method = any(isinstance(a, FUNCTIONS) and a.name in STEP_METHODS for a in source.ancestors(node))
    if in_step_method and not is_shown_only(source, node):
        return True
    return any(id(step.loop) in around or any(id(h) in around for h in step.helpers) for step in step_loops(source))


def runs_often(source: Source, node: ast.AST) -> bool:
    """Whether the node runs on every step, batch or sample: there, or in a function of this file that is called there."""
    if runs_every_step(source, node):
        return True
    if is_shown_only(source, node):
        return False
    places: tuple[ast.AST, ...] = (node,)
    for _ in range(3):  # the function itself, and two calls followed outwards
        functions = [f for place in places if isinstance(f := source.enclosing(place, *FUNCTIONS), FUNCTIONS)]
        if any(function.name in _OFTEN for function in functions):
            return True
        places = tuple(call for function in functions for call in callers(source, function))
        if any(runs_every_step(source, call) for call in places):
            return True
    return False


def runs_seldom(source: Source, node: ast.AST) -> bool:
    """Whether the node surely runs on few of the steps of a training: in set-up code, once an epoch, under `if step % 100 == 0`.

    A function runs as seldom as all calls of it do, all of which this file must show. What stands outside of every loop in
    a function that holds the training loop is set-up code, and so are `main` and the building of an object.
    """
    places: list[ast.AST] = [node]
    for _ in range(_CALLS_OUTWARDS):
        asked: list[Function] = []
        for place in places:
            function = source.enclosing(place, *FUNCTIONS, ast.Lambda)
            is_seldom = _is_seldom_inside(source, place, function)
            if is_seldom is None and isinstance(function, FUNCTIONS):
                asked.append(function)
            elif not is_seldom:
                return False
        calls = [_all_calls(source, function) for function in asked]
        if not all(calls):
            return False
        places = [call for found in calls for call in found]
    return not places


def _is_seldom_inside(source: Source, node: ast.AST, function: ast.AST | None) -> bool | None:
    """Whether the node runs seldom, as far as the function around it says; None where that is up to those who call it."""
    steps = step_loops(source)
    loops = [node for node in _around(source, node, function) if isinstance(node, _ITERATED)]
    if any(not _makes_no_step(loop, steps) for loop in loops):
        return runs_rarely(source, node, function or source.tree)
    if loops or function is None:
        return True
    if not isinstance(function, FUNCTIONS) or function.name in _OFTEN:
        return False
    return True if function.name in _ONCE or any(lies_in(step.loop, function) for step in steps) else None


def _around(source: Source, node: ast.AST, function: ast.AST | None) -> Iterator[ast.AST]:
    return itertools.takewhile(lambda ancestor: ancestor is not function, source.ancestors(node))


def _makes_no_step(loop: ast.AST, steps: tuple[StepLoop, ...]) -> bool:
    """Whether a loop runs over the epochs of a training, each of which has steps of its own."""
    if not isinstance(loop, LOOPS) or any(step.loop is loop for step in steps):
        return False
    return counts_epochs(loop) or any(lies_in(step.loop, loop) for step in steps)


def _all_calls(source: Source, function: Function) -> tuple[ast.Call, ...]:
    """The calls that run a function of this file; none where it is also used otherwise, or not in this file alone."""
    calls = callers(source, function)
    is_method = isinstance(source.parent(function), ast.ClassDef)
    return calls if is_method or len(source.uses_of(function, function.name)) == len(calls) else ()
