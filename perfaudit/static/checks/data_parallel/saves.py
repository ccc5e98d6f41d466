"""What a script saves and tells of its training: only one process writes, and what it writes is not of its share alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.data_parallel.program import Program, Refused
from perfaudit.static.checks.data_parallel.steady import Steady
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.loaders import loaders
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import argument, assigned_value


def saves(source: Source) -> list[ast.stmt]:
    """The statements that write a checkpoint, of which one process takes care."""
    return [source.statement(call) for call in source.calls("torch.save")]


def refuse_saves(program: Program, steady: Steady, models: set[int]) -> None:
    """Raises Refused where what is saved, or divided by the number of samples, would be of a share of the data."""
    source = program.source
    seen = _seen_in_steps(program)
    for call in source.calls("torch.save"):
        statement = source.parent(call)
        if not isinstance(statement, ast.Expr) or source.enclosing(call, ast.ClassDef, ast.Lambda) is not None:
            raise Refused("`torch.save` is no statement of its own")
        parts = _parts(steady, call.args[0]) if call.args else [None]
        if not all(_is_saved_whole(source, steady, models, seen, part) for part in parts):
            raise Refused(f"`{source.brief(call, 40)}` saves more than states and settings")
        for around in source.ancestors(call):
            if isinstance(around, ast.If) and _mentions(source, around.test, seen):
                raise Refused("figures of the training decide what is saved, and a process has those of its share")
    for division in source.nodes(ast.BinOp):
        is_mean = isinstance(division.op, (ast.Div, ast.FloorDiv)) and _counts_samples(program, division.right)
        if is_mean and _mentions(source, division.left, seen):
            raise Refused("a figure of the training is divided by a number of all samples, and a process has a share")


def _parts(steady: Steady, node: ast.expr, depth: int = 4) -> list[ast.expr | None]:
    """What a saved object is made of: the values of a dict, also of one that a variable or a parameter is."""
    for _ in range(depth):
        bound = steady.source.lookup(node) if isinstance(node, ast.Name) else []
        if len(bound) != 1:
            break
        if isinstance(bound[0], ast.arg):
            passed = steady.arguments_for(bound[0])
            if len(passed) > 1:
                return [part for value in passed for part in _parts(steady, value, depth - 1)]
            inner = passed[0] if passed else None
        else:
            inner = assigned_value(steady.source, bound[0])
        if inner is None:
            break
        node = inner
    return [*node.values] if isinstance(node, ast.Dict) else [node]


def _is_saved_whole(source: Source, steady: Steady, models: set[int], seen: set[int], node: ast.expr | None) -> bool:
    """Whether a value is the same whichever process saves it, but for roundings."""
    if node is None or any(id(n) in models for n in ast.walk(node)):
        call = node if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        return call is not None and last_name(call.func) == "state_dict"
    if isinstance(node, ast.Call) and last_name(node.func) == "state_dict":
        return True
    if isinstance(node, ast.Name):
        return steady.is_steady(node) or not _mentions(source, node, seen)
    return steady.is_steady(node)


def _seen_in_steps(program: Program) -> set[int]:
    """What binds figures that a process has of its own share, by id: set in the training loop, or made of what is."""
    source = program.source
    function = source.enclosing(program.steps, *FUNCTIONS)
    calls: tuple[ast.Call, ...] = ()
    if isinstance(function, FUNCTIONS) and not any(
        around is program.epochs for around in source.ancestors(program.steps)
    ):
        calls = callers(source, function)
    seen = {id(n) for n in ast.walk(program.steps) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for _ in range(3):  # what is made of it, and what is made of that
        for target, value in _assignments(source):
            if _mentions(source, value, seen) or any(n is call for n in ast.walk(value) for call in calls):
                seen |= {id(n) for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return seen


def _assignments(source: Source) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with the whole value."""
    for statement in source.nodes(ast.Assign):
        yield from ((target, statement.value) for target in statement.targets)
    for added in source.nodes(ast.AugAssign):
        yield added.target, added.value
    for declared in source.nodes(ast.AnnAssign):
        if declared.value is not None:
            yield declared.target, declared.value


def _mentions(source: Source, node: ast.AST, seen: set[int]) -> bool:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return any(id(binding) in seen for name in names for binding in source.lookup(name))


def _counts_samples(program: Program, node: ast.expr, depth: int = 4) -> bool:
    """Whether an expression has `len` of the training data in it, a variable that was set to that, or the size of a batch."""
    source = program.source
    data, size = argument(source, program.loader, "dataset", 0), argument(source, program.loader, "batch_size", 1)
    for part in ast.walk(node):
        if isinstance(part, ast.expr) and isinstance(size, ast.expr) and ast.dump(part) == ast.dump(size):
            return True
        if isinstance(part, ast.Name):
            values = [assigned_value(source, binding) for binding in source.lookup(part)]
            lengths = [value for value in values if isinstance(value, ast.Call) and last_name(value.func) == "len"]
            if depth and any(_counts_samples(program, length, depth - 1) for length in lengths):
                return True
        if isinstance(part, ast.Call) and last_name(part.func) == "len" and part.args:
            counted = part.args[0]
            if isinstance(counted, ast.Attribute) and counted.attr == "dataset":
                known = loaders(source, counted.value)
                return known is None or any(call is program.loader for call in known)
            if (
                isinstance(counted, ast.Name)
                and isinstance(data, ast.Name)
                and source.lookup(counted) == source.lookup(data)
            ):
                return True
    return False
