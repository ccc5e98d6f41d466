"""How far a script has come: from its own loops, as the text has them and as their variables stand. Child only.

A loop over a range, a loop over the loader, `while` with a bound, and `while True` that a bound breaks are understood. Where one
of the loops around an update is none of these, nothing is said.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType

from perfaudit.target.frame_names import names_in

Loop = ast.For | ast.While
Fraction = float | None


def fraction_done(frame: FrameType | None, is_own: Callable[[str], bool], of_epoch: Fraction) -> Fraction:
    """Share of all steps that are made, None where that is not known.

    frame: in which an update has just ended. is_own: whether a file is the script's. of_epoch: share of the loader's batches.
    """
    done: Fraction = None
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            for loop in _loops_around(frame):
                done = _outward(loop, frame, done, of_epoch)
                if done is None:
                    return None
        frame = frame.f_back
    return None if done is None else min(1.0, max(0.0, done))


def _outward(loop: Loop, frame: FrameType, inner: Fraction, of_epoch: Fraction) -> Fraction:
    """Share of a loop that is made, where `inner` is that of the loop within it."""
    if isinstance(loop, ast.While):
        return _of_bound(loop, frame)
    bounds = _range(loop.iter, frame)
    if bounds is None:
        return of_epoch if inner is None else None
    at = _value(loop.target, frame)
    first, behind, by = bounds
    rounds = (behind - first) / by
    return None if at is None or rounds <= 0 else ((at - first) / by + (1.0 if inner is None else inner)) / rounds


def _of_bound(loop: ast.While, frame: FrameType) -> Fraction:
    """Of `while a < b`, and of `while True` with `if a > b: break`: a / b, where each round of the loop adds to a."""
    tests = [loop.test]
    if isinstance(loop.test, ast.Constant):
        breaks = [each for each in loop.body if isinstance(each, ast.If) and isinstance(each.body[-1], ast.Break)]
        tests = [each.test for each in breaks]
    for test in tests:
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            at, bound = _value(test.left, frame), _value(test.comparators[0], frame)
            if at is not None and bound and 0 <= at <= bound and _grows(test.left, loop):
                return at / bound
    return None


def _grows(counter: ast.expr, loop: ast.While) -> bool:
    """Whether each round adds to a counter: one that is set back now and then, such as a patience, says nothing of the end."""
    wanted = ast.unparse(counter)
    writes = [
        node for node in ast.walk(loop)
        if isinstance(node, (ast.Assign, ast.AugAssign)) and wanted in map(ast.unparse, _targets_of(node))
    ]  # fmt: skip
    adds = [node for node in writes if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)]
    return bool(adds) and len(adds) == len(writes) and any(node in loop.body for node in adds)


def _targets_of(statement: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def _range(iterated: ast.expr, frame: FrameType) -> tuple[float, float, float] | None:
    """First, bound and step of a range, also of one that `tqdm` shows; None for something else."""
    if not isinstance(iterated, ast.Call) or not iterated.args:
        return None
    name = iterated.func.attr if isinstance(iterated.func, ast.Attribute) else getattr(iterated.func, "id", "")
    if name in ("tqdm", "track"):
        return _range(iterated.args[0], frame)
    if name not in ("range", "trange"):
        return None
    values = [_value(each, frame) for each in iterated.args[:3]]
    known = [each for each in values if each is not None]
    if len(known) < len(values):
        return None
    first, behind = known[:2] if len(known) > 1 else (0.0, known[0])
    by = known[2] if len(known) > 2 else 1.0
    return (first, behind, by) if by else None


def _value(expression: ast.expr, frame: FrameType) -> float | None:
    """A number that an expression has now, without running any code of the script's; None for another expression."""
    if isinstance(expression, ast.BinOp):
        left, right = _value(expression.left, frame), _value(expression.right, frame)
        work = _ARITHMETIC.get(type(expression.op))
        return work(left, right) if work is not None and left is not None and right else None
    found = _object(expression, frame)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _object(expression: ast.expr, frame: FrameType) -> object:
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Name):
        with names_in(frame) as names:
            return names.get(expression.id, frame.f_globals.get(expression.id))
    if isinstance(expression, ast.Attribute):
        held = getattr(_object(expression.value, frame), "__dict__", {})
        return held.get(expression.attr) if isinstance(held, Mapping) else None
    return None


_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: lambda left, right: left // right,
}


def _loops_around(frame: FrameType) -> Iterator[Loop]:
    """The loops in whose body a frame is, the innermost first."""
    line, first = frame.f_lineno, frame.f_code.co_firstlineno
    around = [
        loop
        for loop in _loops(frame.f_code.co_filename)
        if loop.lineno >= first and loop.body[0].lineno <= line <= (loop.body[-1].end_lineno or line)
    ]
    yield from reversed(around)


@functools.lru_cache
def _loops(file: str) -> tuple[Loop, ...]:
    """All loops of a file, an outer one before those in it."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return ()
    return tuple(sorted((each for each in ast.walk(tree) if isinstance(each, Loop)), key=lambda each: each.lineno))
