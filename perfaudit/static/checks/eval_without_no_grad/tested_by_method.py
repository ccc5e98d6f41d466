"""The method `test` of an object that keeps a model: loops of other files call it, and each call runs the model once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.eval_without_no_grad.callers import calls_elsewhere
from perfaudit.static.checks.eval_without_no_grad.model_runs import records_graph, runs_model
from perfaudit.static.checks.eval_without_no_grad.surroundings import gradients_are_off
from perfaudit.static.checks.eval_without_no_grad.wanted_gradients import needs_gradients
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.registry import Proposal, Seen
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.backward import runs_backward
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.elsewhere import built_by
from perfaudit.static.understanding.names import last_name


def tests_by_method(source: Source, call: ast.Call, model: str) -> Iterator[tuple[Function, Seen]]:
    """Of a model that an object keeps, its method `test` that runs it once, for loops of other files.

    So do programs after pix2pix: the same object trains by another method, and never puts its model into eval mode. Nor is it
    told to: their batch norm and dropout are meant to behave as in training.
    """
    owner = source.enclosing(call, ast.ClassDef)
    if not model.startswith("self.") or not isinstance(owner, ast.ClassDef) or source.neighbours is None:
        return
    method = next((m for m in owner.body if isinstance(m, FUNCTIONS) and m.name == "test"), None)
    if method is None or method.decorator_list or any(isinstance(node, LOOPS) for node in walk(method)):
        return
    runs = [node for node in walk(method) if isinstance(node, ast.Call) and runs_model(source, node, model)]
    if not runs or not all(records_graph(source, run) for run in runs) or gradients_are_off(source, runs[0]):
        return
    if needs_gradients(source, method, model) or calls_elsewhere(source, [method]).off:
        return
    if _is_run_in_loops(source, owner, source.neighbours):
        message = f"`{source.brief(runs[0])}` in `test` evaluates, but records a graph, which no backward pass uses"
        yield method, Seen(runs[0], message, Proposal("decorate `test` with `@torch.no_grad()`"))


def _is_run_in_loops(source: Source, owner: ast.ClassDef, neighbours: Neighbours) -> bool:
    """Whether loops of other files call `test` of an object of this class, and no file that calls a `test` may use its graph.

    What the method leaves in the object is at hand for whoever calls it: the class itself, one that is derived from it, and
    the loop around the call.
    """
    if source.calls(".test"):
        return False
    is_run = False
    for there in neighbours.importers_calling("test"):
        calls = [call for call in there.calls(".test") if called_function(there, call) is None]
        if calls and (runs_backward(there.text) or "autograd" in there.text or there.calls(".step")):
            return False
        for call in calls:
            tested = call.func.value if isinstance(call.func, ast.Attribute) else call
            if last_name(tested.func if isinstance(tested, ast.Call) else tested) in ("self", "super"):
                return False
            is_run = is_run or (
                there.enclosing(call, *LOOPS) is not None and _is_object(owner, there, tested, neighbours)
            )
    return is_run


def _is_object(owner: ast.ClassDef, there: Source, node: ast.expr, neighbours: Neighbours) -> bool:
    """Whether all that builds an object of another file is this class, or a function of the project that calls it."""
    built = built_by(there, node)
    return bool(built) and all(_builds(owner, there, call, neighbours) for call in built)


def _builds(owner: ast.ClassDef, there: Source, call: ast.Call, neighbours: Neighbours) -> bool:
    dotted = there.qualified_name(call.func)
    if not dotted:
        return False
    found = neighbours.definition_of(dotted, there)
    if found is None:  # so it is of what stands in the file that is asked about
        return dotted.rpartition(".")[2] == owner.name and (dotted[0] == "." or neighbours.is_own_module(dotted, there))
    calls = (node for node in walk(found[1]) if isinstance(node, ast.Call))
    return isinstance(found[1], FUNCTIONS) and any(last_name(node.func) == owner.name for node in calls)
