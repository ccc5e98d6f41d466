"""Evaluations of a file that never puts the model into eval mode: of one that trains, and of a script that loads weights."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.eval_without_no_grad.callers import calls_elsewhere
from perfaudit.static.checks.eval_without_no_grad.escape import graph_escapes, proves_no_graph
from perfaudit.static.checks.eval_without_no_grad.frozen import may_be_frozen
from perfaudit.static.checks.eval_without_no_grad.model_runs import by_models, records_graph, runs_model
from perfaudit.static.checks.eval_without_no_grad.surroundings import functions_around, gradients_are_off
from perfaudit.static.checks.eval_without_no_grad.unseen_calls import unseen_call
from perfaudit.static.checks.eval_without_no_grad.wanted_gradients import needs_gradients
from perfaudit.static.registry import Proposal, Seen
from perfaudit.static.source import FUNCTIONS, LOOPS, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.loaders import loaders
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.step_loops import step_loops

_OF_TESTS = regex(
    r"_*(test|testing|val|valid|validation|eval)(_*(data|set|dataset))?_*(loaders?|dataloaders?|dl|iter|gen|batches)_*"
)
_EVALUATES = regex(
    r"_*(eval|evaluate|validate)(_(model|on))?(_(the_)?(test|val|valid|validation|dev)(_?(set|data))?)?_*|test|validation"
)
_AROUND = {"enumerate", "tqdm"}


def evaluated_in_training_mode(source: Source, call: ast.Call) -> Iterator[tuple[Loop, Seen]]:
    """Of a model whose parameters are asked for, the loops over the batches of a test that run it, in a file that trains.

    Those are told by the name of what they go through, or of the function around them. Only where no model of the file is put
    into eval mode: else that says which loops evaluate.
    """
    model = model_asked(source, call)
    if model and _first_asked(source)[model] is call:  # what is said of a model is said by its name, and once
        loops = _loops_of_tests(source).get(model)
        if loops and any(_runs(source, loop, model) for loop in _loops_that_train(source).get(model, ())):
            yield from _loops_that_record(source, loops, model)


@remember
def _first_asked(source: Source) -> dict[str, ast.Call]:
    """The first call that asks a model for its parameters, by the name of the model."""
    found: dict[str, ast.Call] = {}
    for call in source.calls(".parameters"):
        found.setdefault(dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else "", call)
    return found


@remember
def _loops_of_tests(source: Source) -> dict[str, list[ast.For]]:
    """The loops over the batches of a test, by the name of each model that they may run."""
    loops = (loop for loop in source.nodes(ast.For) if _goes_through_test(loop) or _is_in_evaluation(source, loop))
    return by_models(source, loops)


@remember
def _loops_that_train(source: Source) -> dict[str, list[Loop]]:
    """The training loops, by the name of each model that they may run, also through a function of this file."""
    return by_models(source, (step.loop for step in step_loops(source)))


def evaluations_with_loaded_weights(source: Source, call: ast.Call) -> Iterator[tuple[Loop, Seen]]:
    """Of a model that is given saved weights, the loops over batches in the same function that run it, in a file that never
    trains: no backward pass, no optimizer, and no model in eval mode. None where a model is put into training mode: batch norm
    or dropout is meant to behave as in training.
    """
    model = model_asked(source, call)
    if model and not source.calls(".train") and not backward_calls(source) and not source.mentions("optim"):
        loops = (
            loop
            for loop in _loops_by_scope(source).get(id(source.scope(call)), ())
            if _goes_through_test(loop) or loaders(source, loop.iter)
        )
        yield from _loops_that_record(source, loops, model)


@remember
def _loops_by_scope(source: Source) -> dict[int, list[ast.For]]:
    found: dict[int, list[ast.For]] = {}
    for loop in source.nodes(ast.For):
        found.setdefault(id(source.scope(loop)), []).append(loop)
    return found


def model_asked(source: Source, call: ast.Call) -> str:
    """The model of `model.parameters()`; "" where some model of the file is put into eval mode, or records nothing."""
    model = dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if model == "self" or source.calls(".eval") or not source.imports_torch or source.mentions("volatile"):
        return ""
    return "" if model and may_be_frozen(source, model) else model


def _loops_that_record(source: Source, loops: Iterable[ast.For], model: str) -> Iterator[tuple[Loop, Seen]]:
    """Those of the loops that run the model and record a graph, of which nothing leaves the loop."""
    for loop in loops:
        runs = _runs(source, loop, model)
        if not runs or not all(records_graph(source, run) for run in runs):
            continue
        if gradients_are_off(source, runs[0]) or calls_elsewhere(source, functions_around(source, loop) or []).off:
            continue
        if needs_gradients(source, loop, model) or proves_no_graph(loop, runs) or graph_escapes(source, loop, runs):
            continue
        if unseen_call(source, loop, runs, model, frozenset()) is None:
            first = min(runs, key=lambda run: (run.lineno, run.col_offset))
            message = f"`{source.brief(first)}` evaluates, but records a graph, which no backward pass uses"
            yield (
                loop,
                Seen(first, message, Proposal("run the loop under `torch.no_grad()`, and the model in eval mode")),
            )


def _runs(source: Source, loop: Loop, model: str) -> list[ast.Call]:
    return [node for node in walk(loop) if isinstance(node, ast.Call) and runs_model(source, node, model)]


def _is_in_evaluation(source: Source, loop: ast.For) -> bool:
    """Whether a loop is the outermost one of a function that evaluates by its name: `def evaluate_test_set(model, data)`."""
    function = source.enclosing(loop, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or not _EVALUATES.fullmatch(function.name.lower()):
        return False
    return source.enclosing(loop, *LOOPS, within=function) is None


def _goes_through_test(loop: ast.For) -> bool:
    """Whether a loop goes through what has the name of the loader of a test: `for x, y in tqdm(test_loader)`."""
    over = loop.iter
    while isinstance(over, ast.Call) and last_name(over.func) in _AROUND and over.args:
        over = over.args[0]
    return isinstance(over, (ast.Name, ast.Attribute)) and bool(_OF_TESTS.fullmatch(last_name(over).lower()))
