"""Steps behind some passes only where a function makes the pass or the step, so that no loop shows both: told, and no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.static.checks.ddp_accumulation_without_no_sync import word_of_sync
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.names import is_like_an_optimizer, last_name
from perfaudit.tune.ranks.unsynced.accumulations import is_step
from perfaudit.tune.ranks.unsynced.holder_uses import ids_below
from perfaudit.tune.ranks.unsynced.rare_steps import is_rare, is_since_last


def hidden_step(sources: Sequence[Source]) -> str:
    """Which function makes such steps, as a sentence; "" where none is seen. Sources that say when they sum are left out."""
    shown = [source for source in sources if not word_of_sync(source)]
    if not any(backward_calls(source) for source in shown):
        return ""
    for source in shown:
        if call := next(_told_calls(source), None):
            return f"`{source.brief(call.func)}` of {source.path}:{call.lineno} makes the passes and the steps, in its own code"
    stepping = {
        each.name for source in shown for each in source.nodes(ast.FunctionDef) if any(map(is_step, ast.walk(each)))
    }
    passing = {
        function.name
        for source in shown
        for call in backward_calls(source)
        for function in _functions_around(source, call)
    }
    for source in shown:
        if place := next(
            iter((*_conditions_elsewhere(source, stepping - passing), *_counted_loops(source, passing))), None
        ):
            return (
                f"an optimizer steps behind some passes only, as {source.path}:{place.lineno} has it, and no loop shows both its "
                "passes and its steps"
            )
    for source in shown:
        if condition := next(_conditions_deeper(source), None):
            return (
                f"an optimizer steps behind some passes only, as {source.path}:{condition.lineno} has it, and the pass does not "
                "stand in front of that condition in the same block"
            )
    return ""


def _told_calls(source: Source) -> Iterator[ast.Call]:
    """Calls that get an optimizer, and are told when to step: `loss_scaler(loss, optimizer, update_grad=(i + 1) % n == 0)`."""
    for call in source.nodes(ast.Call):
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(is_like_an_optimizer(last_name(value)) for value in values) and any(map(is_rare, values)):
            yield call


def _functions_around(source: Source, node: ast.AST) -> Iterator[Function]:
    return (each for each in source.ancestors(node) if isinstance(each, FUNCTIONS))


def _conditions_elsewhere(source: Source, stepping: set[str]) -> Iterator[ast.If]:
    """Conditions under which a function that steps is called, or under which a function without a loop steps itself.

    stepping: names of functions that step, and make no pass of their own, as that of a generator does in each fifth turn.
    """
    for condition in source.nodes(ast.If):
        if not (is_rare(condition.test) or is_since_last(condition.test, condition.body)):
            continue
        inside = [node for statement in condition.body for node in ast.walk(statement)]
        around = source.enclosing(condition, *LOOPS, *FUNCTIONS)
        if any(isinstance(node, ast.Call) and last_name(node.func) in stepping for node in inside) or (
            isinstance(around, FUNCTIONS) and any(map(is_step, inside))
        ):
            yield condition


def _conditions_deeper(source: Source) -> Iterator[ast.If]:
    """Conditions of all steps of a loop that has its passes elsewhere: `try:` and `if i > n:` stand around one of the two."""
    for condition in source.nodes(ast.If):
        loop = source.enclosing(condition, *LOOPS, *FUNCTIONS)
        if not (isinstance(loop, LOOPS) and is_rare(condition.test)):
            continue
        inside = ids_below(condition.body)
        steps = [node for node in ast.walk(loop) if is_step(node)]
        passes = [call for call in backward_calls(source) if any(each is loop for each in source.ancestors(call))]
        if steps and all(id(each) in inside for each in steps) and any(id(each) not in inside for each in passes):
            yield condition


def _counted_loops(source: Source, passing: set[str]) -> Iterator[ast.For]:
    """`for i in range(n):` that calls a function with a pass, and behind which an optimizer steps."""
    for loop in source.nodes(ast.For):
        inside = [node for statement in loop.body for node in ast.walk(statement)]
        if last_name(loop.iter.func) != "range" if isinstance(loop.iter, ast.Call) else True:
            continue
        is_passing = any(isinstance(node, ast.Call) and last_name(node.func) in passing for node in inside)
        block = source.block(loop)
        behind = block[next(index for index, each in enumerate(block) if each is loop) + 1 :]
        steps = any(is_step(node) for statement in behind for node in ast.walk(statement))
        if is_passing and steps and not any(map(is_step, inside)):
            yield loop
