"""Where gradients of several passes add up before one step, and what tells which of the passes is the last one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfaudit.static.checks.ddp_accumulation_without_no_sync import passes_before_a_rare_step
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.names import is_like_an_optimizer, last_name
from perfaudit.tune.ranks.unsynced.rare_steps import rare_steps

_LEAVES = (ast.Break, ast.Continue, ast.Return)


@dataclass(frozen=True, slots=True)
class Accumulation:
    """Backward passes whose gradients add up before an optimizer steps: one pass in each turn of a loop.

    block: the statements among which the pass lies. end: the index in it of the first statement behind all passes, which runs
    after the last pass only. is_last: the condition under which a turn makes the last pass, as the text has it; test: the same as
    an expression. is_counted: the condition speaks of the turn as it begins, so that nothing in the turn may change its names.
    steps: the statements behind the last pass in which the optimizer steps, and in which gradients may be read. makes_steps: the
    passes are calls that make the steps as well, see `told_scalers`.
    """

    passes: Sequence[ast.Call]
    block: list[ast.stmt]
    end: int
    is_last: str
    test: ast.expr
    line: int
    steps: Sequence[ast.stmt]
    is_counted: bool = False
    makes_steps: bool = False


def accumulations(source: Source) -> list[Accumulation]:
    """Those of a file: an optimizer that steps under `if (i + 1) % n == 0` or the like, or behind `for i in range(n)`."""
    by_condition: dict[int, tuple[ast.If, list[ast.Call]]] = {}
    for call, condition in passes_before_a_rare_step(source):
        calls = by_condition.setdefault(id(condition), (condition, []))[1]
        if not any(call is other for other in calls):
            calls.append(call)
    found = []
    for condition, calls in by_condition.values():
        block, text = source.block(condition), source.text_of(condition.test)
        end = next(index for index, each in enumerate(block) if each is condition)
        found.append(Accumulation(calls, block, end, text, condition.test, condition.lineno, condition.body))
    known = [call for each in found for call in each.passes]
    for rare in rare_steps(source):
        if not any(call is other for call in rare.passes for other in known):
            text, line, block = ast.unparse(rare.test), rare.condition.lineno, source.block(rare.condition)
            found.append(Accumulation(rare.passes, block, rare.end, text, rare.test, line, rare.steps))
    return [*found, *_in_counted_loops(source)]


def _in_counted_loops(source: Source) -> Iterator[Accumulation]:
    """Passes of `for i in range(n):`, behind which an optimizer steps, in the same block. No turn may be left early."""
    for loop in source.nodes(ast.For):
        counted = loop.iter
        if not (
            isinstance(counted, ast.Call)
            and isinstance(counted.func, ast.Name)
            and counted.func.id == "range"
            and len(counted.args) == 1
            and not isinstance(counted.args[0], ast.Starred)
            and isinstance(loop.target, ast.Name)
            and not loop.orelse
        ):
            continue
        passes = [call for call in backward_calls(source) if _lies_straight_in(source, call, loop)]
        block = source.block(loop)
        behind = block[next(index for index, each in enumerate(block) if each is loop) + 1 :]
        steps = [statement for statement in behind if any(map(is_step, ast.walk(statement)))]
        inside = [node for statement in loop.body for node in ast.walk(statement)]
        if passes and steps and not any(isinstance(node, _LEAVES) or is_step(node) for node in inside):
            number = source.text_of(counted.args[0])
            if not isinstance(counted.args[0], (ast.Name, ast.Attribute, ast.Constant)):
                number = f"({number})"
            text = f"{loop.target.id} == {number} - 1"
            test = ast.parse(text, mode="eval").body
            yield Accumulation(passes, loop.body, len(loop.body), text, test, loop.lineno, behind, True)


def _lies_straight_in(source: Source, call: ast.Call, loop: ast.For) -> bool:
    """Whether the loop is the innermost one around a call, in the same function."""
    return source.enclosing(call, ast.For, ast.While) is loop and (
        source.enclosing(call, *FUNCTIONS) is source.enclosing(loop, *FUNCTIONS)
    )


def is_step(node: ast.AST) -> bool:
    """Whether an optimizer steps here, by its name."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and is_like_an_optimizer(name := last_name(node.func.value).lower())
        and "sched" not in name
    )
