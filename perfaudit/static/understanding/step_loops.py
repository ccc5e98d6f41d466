"""The loops that train: which turns of which loop are the steps."""

from __future__ import annotations

import ast

from perfaudit.records import NamedTuple
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import lies_in
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls, updates_weights
from perfaudit.static.understanding.called_functions import calls_of_functions
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.rarely import runs_rarely

CALLS_DEEP = 2  # calls followed from a training loop


class StepLoop(NamedTuple):
    """A loop that makes one training step per iteration.

    It is the innermost loop that reaches `backward`; the next one out, which may call the function of the inner one, where
    only that one updates the weights (accumulation of gradients). `helpers` are the functions of this file it reaches
    `backward` through, two calls deep at most.
    """

    loop: Loop
    helpers: tuple[Function, ...]


@remember  # several rules ask for the same file
def step_loops(source: Source) -> tuple[StepLoop, ...]:
    """The training loops of a file, in document order."""
    backward = backward_calls(source)
    if not backward:
        return ()
    found: dict[int, tuple[Loop, list[Function]]] = {}
    reached: dict[int, list[Function]] = {}
    accumulating: dict[int, Loop] = {}  # loops that update no weights, by the functions that they are in
    for call in backward:
        loop = _step_loop_around(source, call)
        if isinstance(function := source.enclosing(call, *FUNCTIONS), FUNCTIONS):
            reached[id(function)] = [function]
            if loop is not None and not _updates(source, function):
                accumulating[id(function)] = loop
        if loop is not None:
            found.setdefault(id(loop), (loop, []))
    known = set(reached)
    for _ in range(CALLS_DEEP if reached else 0):
        further: dict[int, list[Function]] = {}
        with_loop = {id(ancestor) for loop, _ in found.values() for ancestor in source.ancestors(loop)}
        with_loop -= accumulating.keys()
        for call, function in calls_of_functions(source):
            helpers = reached.get(id(function)) if id(function) not in with_loop else None
            if helpers is None:
                continue
            loop = _step_loop_around(source, call)
            inner = next((accumulating[id(helper)] for helper in helpers if id(helper) in accumulating), None)
            if loop is not None and inner is not None:
                if _updates(source, loop):
                    found.pop(id(inner), None)
                    _add(found.setdefault(id(loop), (loop, []))[1], helpers)
            elif loop is not None:
                _add(found.setdefault(id(loop), (loop, []))[1], helpers)
            elif (around := _calls_it_each_time(source, call)) is not None and id(around) not in known:
                _add(further.setdefault(id(around), [around]), helpers)
        known |= further.keys()
        reached = further
    loops = [StepLoop(loop, tuple(helpers)) for loop, helpers in found.values()]
    return tuple(sorted(loops, key=lambda item: item.loop.lineno))


def _updates(source: Source, root: Loop | Function) -> bool:
    """Whether a loop or function updates weights, by itself or in what it calls, two calls deep, and in no loop there."""
    updates = [call for call in source.calls(".step") if updates_weights(call)]
    roots = [root]
    for _ in range(CALLS_DEEP + 1):
        if any(
            lies_in(call, part) and (part is root or source.enclosing(call, *LOOPS, within=part) is None)
            for part in roots
            for call in updates
        ):
            return True
        roots = [function for part in roots for call, function in calls_of_functions(source) if lies_in(call, part)]
    return False


def _add(known: list[Function], functions: list[Function]) -> None:
    known.extend(function for function in functions if not any(other is function for other in known))


def _calls_it_each_time(source: Source, call: ast.Call) -> Function | None:
    """The function around a call, if it makes the call whenever it runs, as far as the text tells."""
    function = source.enclosing(call, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or EVALUATION_NAME.search(function.name.lower()):
        return None
    if not runs_rarely(source, call, function):
        return function
    from perfaudit.static.understanding.learning_periods import is_in_learning_period  # few calls are rare

    return function if is_in_learning_period(source, call, function, few_turns=0) else None


def _step_loop_around(source: Source, call: ast.Call) -> Loop | None:
    """The loop whose iterations are the steps of this backward pass."""
    inner = _loop_around(source, call)
    outer = _loop_around(source, inner) if inner is not None else None
    if outer is None:
        return inner
    updated_in = [_loop_around(source, update) for update in source.calls(".step") if updates_weights(update)]
    if any(loop is inner for loop in updated_in) or not any(loop is outer for loop in updated_in):
        return inner
    return outer


def _loop_around(source: Source, node: ast.AST) -> Loop | None:
    """The innermost loop around a node in the same function.

    A pass over a few written values belongs to the loop around it, and counts itself where there is no other one.
    """
    written: Loop | None = None
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, LOOPS):
            if not is_over_written_values(ancestor):
                return ancestor
            written = written or ancestor
        elif isinstance(ancestor, (*FUNCTIONS, ast.Lambda)):
            break
    return written


def is_over_written_values(loop: Loop) -> bool:
    """Whether a loop goes through a few values written there (`for mode in ("train", "test")`): no loop over batches."""
    if isinstance(loop, ast.While):
        return False
    is_numbered = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in ("enumerate", "zip")
    values = loop.iter.args if is_numbered and isinstance(loop.iter, ast.Call) else [loop.iter]
    return any(isinstance(value, (ast.Tuple, ast.List, ast.Set)) for value in values)
