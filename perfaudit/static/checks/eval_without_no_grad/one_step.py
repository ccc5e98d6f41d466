"""A method that evaluates one batch, for loops of other files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.eval_without_no_grad.callers import CallsInLoops
from perfaudit.static.checks.eval_without_no_grad.eval_mode import ends_eval_mode
from perfaudit.static.checks.eval_without_no_grad.model_runs import records_graph, runs_model
from perfaudit.static.checks.eval_without_no_grad.wanted_gradients import needs_gradients
from perfaudit.static.registry import Proposal, Seen
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import resolve


def one_step(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Function, Seen]]:
    """A method that evaluates one batch and returns numbers, which files that import this one call in loops."""
    function = source.parent(statement)
    if not isinstance(function, FUNCTIONS) or not isinstance(source.parent(function), ast.ClassDef):
        return
    behind = function.body[next(n for n, item in enumerate(function.body) if item is statement) + 1 :]
    if any(isinstance(node, LOOPS) for node in ast.walk(function)) or not _returns_numbers(source, function):
        return
    runs = [n for s in behind for n in ast.walk(s) if isinstance(n, ast.Call) and runs_model(source, n, model)]
    if not runs or not all(records_graph(source, run) for run in runs) or needs_gradients(source, function, model):
        return
    if any(ends_eval_mode(source, n, model) and n.lineno < runs[0].lineno for s in behind for n in ast.walk(s)):  # type: ignore[attr-defined]  # of statements
        return
    name = function.name
    if source.neighbours is None or not source.neighbours.some_importer(CallsInLoops(name), calling=(name,)):
        return
    message = f"`{source.brief(runs[0])}` runs in eval mode, but records a graph, which no backward pass uses"
    yield function, Seen(runs[0], message, Proposal(f"decorate `{function.name}` with `@torch.no_grad()`"))


def _returns_numbers(source: Source, function: Function) -> bool:
    """Whether a function returns plain numbers or arrays, and keeps nothing on its object: no graph leaves it."""
    if any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in ast.walk(function)):
        return False
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    values = [v for value in returned for v in (value.elts if isinstance(value, ast.Tuple) else [value])]
    return bool(values) and all(_is_number(source, value) for value in values)


def _is_number(source: Source, value: ast.expr) -> bool:
    made = resolve(source, value)
    return isinstance(made, ast.Call) and last_name(made.func) in ("item", "numpy", "tolist", "float")
