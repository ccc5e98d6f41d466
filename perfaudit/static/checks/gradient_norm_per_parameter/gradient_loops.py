"""Loops over parameters that work on their gradients one by one, and whether they run in every step."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator

from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.host_models import trains_on_host
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.step_code import step_code
from perfaudit.static.understanding.step_loops import step_loops

_FOLLOW = 3  # calls followed outwards to the training loop
_SAME_GRADIENT = {"detach", "float", "clone", "view", "flatten", "reshape", "to", "double", "contiguous"}
_HOOKS = {"on_after_backward", "on_before_optimizer_step", "on_before_zero_grad", "optimizer_step"}  # of Lightning


def parameter_of(loop: ast.For) -> str:
    """The name that a loop gives each parameter: `p` of `for p in ...` and of `for name, p in m.named_parameters()`."""
    target = loop.target
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target = target.elts[1]
    return target.id if isinstance(target, ast.Name) else ""


def plain_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop, those under conditions included, those of loops inside it left out."""
    for statement in body:
        if isinstance(statement, (ast.If, ast.With)):
            yield from plain_statements([*statement.body, *getattr(statement, "orelse", [])])
        elif not isinstance(statement, (*LOOPS, *FUNCTIONS)):
            yield statement


def is_gradient(node: ast.expr, parameter: str, named: dict[str, ast.expr]) -> bool:
    """Whether an expression is all of `parameter.grad`, whatever type it is computed in."""
    while True:
        if isinstance(node, ast.Name) and node.id in named:
            name = node.id
            node, named = named[name], {key: value for key, value in named.items() if key != name}
        elif isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_GRADIENT:
            node = node.func.value
        else:
            break
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "grad"
        and isinstance(node.value, ast.Name)
        and node.value.id == parameter
    )


@remember
def _code_of_steps(source: Source) -> list[Loop | Function]:
    """The loops that make steps on an accelerator, and what they call each time."""
    steps = [s for s in step_loops(source) if not takes_few_long_steps(source, s) and not trains_on_host(source, s)]
    return [part.root for step in steps for part in step_code(source, step)]


def runs_in_every_step(source: Source, node: ast.AST) -> bool:
    """Whether a node runs on every training step: in it, in a function it calls, here or from a file that imports this one."""
    around = source.enclosing(node, *FUNCTIONS)
    roots = _code_of_steps(source)
    places: list[tuple[ast.AST, ast.AST | None]] = [(node, around)]
    for _ in range(_FOLLOW):
        further: list[tuple[ast.AST, ast.AST | None]] = []
        for place, function in places:
            around_place = {id(ancestor) for ancestor in source.ancestors(place)}
            root = next((r for r in roots if id(r) in around_place), None)
            if root is not None:
                # Behind `if step % accumulate: continue` it runs with every update.
                if not runs_rarely(source, place, root) or runs_each_time(source, place, root):
                    return True
                continue
            if not isinstance(function, FUNCTIONS) or runs_rarely(source, place, function):
                continue
            if _makes_one_step(source, function):
                return True
            calls = callers(source, function)
            if function.name in _HOOKS or (not calls and _is_called_elsewhere(source, function)):
                return True
            further += [(call, source.enclosing(call, *FUNCTIONS)) for call in calls]
        places = further
    return False


def _makes_one_step(source: Source, function: Function) -> bool:
    """Whether a function runs a backward pass itself, and in no loop: whoever calls it makes the steps."""
    own = [call for call in backward_calls(source) if source.enclosing(call, *FUNCTIONS) is function]
    return bool(own) and all(source.enclosing(call, *LOOPS, within=function) is None for call in own)


def _is_called_elsewhere(source: Source, function: Function) -> bool:
    """Whether a file that imports this one calls the function each time it gets there."""
    name = function.name
    if source.neighbours is None:
        return False
    return bool(source.neighbours.some_importer(_calls_each_time(name), calling=(name,)))


@functools.lru_cache(maxsize=64)  # one function object for a name, so that each importer is asked once
def _calls_each_time(name: str) -> Callable[[Source], bool]:
    def fact(source: Source) -> bool:
        return any(
            not runs_rarely(source, call, source.scope(call)) and source.enclosing(call, *FUNCTIONS, *LOOPS) is not None
            for call in source.calls_named(re.compile(rf"^{re.escape(name)}$"))
        )

    return fact
