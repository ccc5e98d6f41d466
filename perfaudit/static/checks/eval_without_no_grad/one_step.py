"""A method or function that evaluates one batch, or one sample, for loops of other files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.eval_without_no_grad.callers import CallsForData, CallsInLoops, is_run_for_data
from perfaudit.static.checks.eval_without_no_grad.escape import leaves_no_graph
from perfaudit.static.checks.eval_without_no_grad.eval_mode import ends_eval_mode
from perfaudit.static.checks.eval_without_no_grad.model_runs import records_graph, runs_model
from perfaudit.static.checks.eval_without_no_grad.wanted_gradients import needs_gradients
from perfaudit.static.registry import Proposal, Seen
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import callers


def one_step(source: Source, statement: ast.stmt, model: str, ways: frozenset[str]) -> Iterator[tuple[Function, Seen]]:
    """A method that evaluates one batch and returns numbers, which files that import this one call in loops.

    Or a function that loops over data call, here or there: `for line in lines: predict(line, model)`.
    """
    function = source.parent(statement)
    if not isinstance(function, FUNCTIONS) or not isinstance(source.parent(function), (ast.ClassDef, ast.Module)):
        return
    behind = function.body[next(n for n, item in enumerate(function.body) if item is statement) + 1 :]
    if any(isinstance(node, LOOPS) for node in walk(function)):
        return
    runs = [n for s in behind for n in walk(s) if isinstance(n, ast.Call) and runs_model(source, n, model, ways)]
    if not runs or not leaves_no_graph(source, function, runs) or _sets_attributes(function):
        return
    if not all(records_graph(source, run) for run in runs) or needs_gradients(source, function, model):
        return
    if any(ends_eval_mode(source, n, model) and n.lineno < runs[0].lineno for s in behind for n in walk(s)):  # type: ignore[attr-defined]  # of statements
        return
    if not _is_run_in_loops(source, function):
        return
    message = f"`{source.brief(runs[0])}` runs in eval mode, but records a graph, which no backward pass uses"
    yield function, Seen(runs[0], message, Proposal(f"decorate `{function.name}` with `@torch.no_grad()`"))


def _is_run_in_loops(source: Source, function: Function) -> bool:
    """Whether loops run it: of a method, those of files that import this one; of a function, those over data."""
    name = function.name
    if isinstance(source.parent(function), ast.ClassDef):
        return source.neighbours is not None and bool(
            source.neighbours.some_importer(CallsInLoops(name), calling=(name,))
        )
    if any(is_run_for_data(source, use) for use in callers(source, function)):
        return True
    module = source.path.rpartition("/")[2].removesuffix(".py")
    return source.neighbours is not None and bool(
        source.neighbours.some_importer(CallsForData(module, name), calling=(name,))
    )


def _sets_attributes(function: Function) -> bool:
    """Whether a function keeps something on an object, which may carry the graph."""
    return any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in walk(function))
