"""An optimizer that steps behind some passes only, in other words than `if (i + 1) % n == 0: optimizer.step()`.

In the `else` of a question, behind `if (i + 1) % n: continue`, under a name that was set to the answer, by a counter that starts
anew, and by what was counted since the last step (`i - last >= n`). Each is read as a condition under which the step follows the
pass of the same turn.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence

from perfaudit.records import NamedTuple
from perfaudit.static.checks.ddp_accumulation_without_no_sync import passes_and_steps
from perfaudit.static.source import Loop, Source
from perfaudit.static.understanding.rarely import rare_when

_Block = Sequence[ast.stmt]


class RareStep(NamedTuple):
    """A step behind the last of several passes. end: how many statements of the block of `condition` come before the test is
    answered; test: what holds where the step follows; steps: the statements with the step.
    """

    passes: list[ast.Call]
    condition: ast.If
    end: int
    test: ast.expr
    steps: list[ast.stmt]


def rare_steps(source: Source) -> Iterator[RareStep]:
    """Those whose condition the text tells, one at most for each loop. All steps of the loop lie under it."""
    for loop, passes, steps in passes_and_steps(source):
        for condition, test, behind in _conditions(source, steps, loop):
            before = _passes_before(source, passes, condition)
            if before and (told := _question(source, before, condition, test, behind)):
                yield RareStep(before, condition, *told, behind)
                break


def step_not_told(source: Source) -> int:
    """The line of a step that follows some passes only, where nothing above tells which; 0 for none."""
    for loop, passes, steps in passes_and_steps(source):
        for condition, test, behind in _conditions(source, steps, loop):
            is_counted = _seems_counted(test, loop) or is_since_last(test, behind)
            if is_counted and _passes_before(source, passes, condition):
                return condition.lineno
    return 0


def _conditions(
    source: Source, steps: Sequence[ast.Call], loop: Loop
) -> Iterator[tuple[ast.If, ast.expr, list[ast.stmt]]]:
    """The questions of a loop that all steps lie under, each with what holds at them and with the statements that then run."""
    for step in steps[:1]:
        for condition, test, behind in _conditions_of(source, step, loop):
            if all(_lies_in(source, other, behind) for other in steps):
                yield condition, test, behind


def _conditions_of(source: Source, step: ast.Call, loop: Loop) -> Iterator[tuple[ast.If, ast.expr, list[ast.stmt]]]:
    child: ast.AST = step
    for around in source.ancestors(step):
        if isinstance(child, ast.stmt):
            block = source.block(child)
            for index, each in enumerate(block[: _place(block, child)]):
                if isinstance(each, ast.If) and isinstance(each.body[-1], ast.Continue) and not each.orelse:
                    yield each, _opposite(each.test), block[index + 1 :]
        if around is loop:
            return
        if isinstance(around, ast.If) and any(child is each for each in around.body):
            yield around, around.test, around.body
        elif isinstance(around, ast.If) and any(child is each for each in around.orelse):
            yield around, _opposite(around.test), around.orelse
        child = around


def _place(block: _Block, statement: ast.stmt) -> int:
    return next(index for index, each in enumerate(block) if each is statement)


def _passes_before(source: Source, passes: Sequence[ast.Call], condition: ast.If) -> list[ast.Call]:
    """The passes in statements in front of a condition, in its block."""
    kinds = [each for each in source.before(condition) if isinstance(each, (ast.Expr, ast.With, ast.If))]
    return [call for call in passes if _lies_in(source, call, kinds)]


def _question(
    source: Source, passes: Sequence[ast.Call], condition: ast.If, test: ast.expr, behind: _Block
) -> tuple[int, ast.expr] | None:
    """Where the question is answered in its block, and the question; None where it does not count the passes."""
    block = source.block(condition)
    place = _place(block, condition)
    last = max(index for index in range(place) if any(_lies_in(source, call, [block[index]]) for call in passes))
    flags = _flags(block[:place], test)
    asked = _put(flags, block, test)
    counts = is_rare(asked) or _starts_anew(test, behind) or is_since_last(test, behind)
    if isinstance(asked, (ast.IfExp, ast.Lambda)) or not counts:
        return None
    if all(index < last for index in flags.values()):
        return place, test
    if isinstance(test, ast.Name) and len(source.lookup(test)) == 1:
        return flags[test.id], asked
    return None


def _flags(before: _Block, test: ast.expr) -> dict[str, int]:
    """The names of a question that statements in front of it set, with the place of the last one of each."""
    names = _names(test)
    return {
        each.targets[0].id: index
        for index, each in enumerate(before)
        if isinstance(each, ast.Assign)
        and len(each.targets) == 1
        and isinstance(each.targets[0], ast.Name)
        and each.targets[0].id in names
    }


def _put(flags: dict[str, int], block: _Block, test: ast.expr) -> ast.expr:
    """A question with what its names were set to."""
    values = {name: each.value for name, index in flags.items() if isinstance(each := block[index], ast.Assign)}
    asked: ast.expr = _Put(values).visit(copy.deepcopy(test))
    return asked


class _Put(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._values.get(node.id, node))


def is_rare(test: ast.expr) -> bool:
    return _has_remainder(test) and rare_when(test) is True


def _has_remainder(test: ast.expr) -> bool:
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test))


def _starts_anew(test: ast.expr, behind: _Block) -> bool:
    """Whether a question is `count == n`, and the count is set to 0 where it holds."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and len(test.ops) == 1
        and isinstance(test.ops[0], (ast.Eq, ast.GtE))
        and any(
            isinstance(each, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == test.left.id for target in each.targets)
            and isinstance(each.value, ast.Constant)
            and each.value.value == 0
            for each in behind
        )
    )


def is_since_last(test: ast.expr, behind: _Block) -> bool:
    """Whether a question is `i - last >= n`, and `last` is set to `i` where it holds."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.GtE))):
        return False
    since = test.left
    return (
        isinstance(since, ast.BinOp)
        and isinstance(since.op, ast.Sub)
        and any(
            isinstance(each, ast.Assign)
            and ast.unparse(each.value) == ast.unparse(since.left)
            and any(ast.unparse(target) == ast.unparse(since.right) for target in each.targets)
            for each in behind
        )
    )


def _seems_counted(test: ast.expr, loop: Loop) -> bool:
    """Whether a question, or what its loop sets a name in it to, has a remainder, or compares what the loop counts up."""
    names = _names(test)
    asked, counted = [test], set[str]()
    for node in ast.walk(loop):
        if not isinstance(node, (ast.Assign, ast.AugAssign)):
            continue
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
        if not isinstance(target, ast.Name):
            continue
        adds_itself = isinstance(node.value, ast.BinOp) and target.id in _names(node.value)
        if isinstance(node, ast.AugAssign) or adds_itself:
            counted.add(target.id)
        elif target.id in names:
            asked.append(node.value)
    compared = (_names(node) for each in asked for node in ast.walk(each) if isinstance(node, ast.Compare))
    return any(map(is_rare, asked)) or any(counted & each for each in compared)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _opposite(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.NotEq):
        return ast.Compare(test.left, [ast.Eq()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def _lies_in(source: Source, node: ast.AST, statements: _Block) -> bool:
    return any(around is each for around in source.ancestors(node) for each in statements)
