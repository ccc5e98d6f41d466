"""Evaluations of a file that trains and never puts the model into eval mode."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.eval_without_no_grad.callers import calls_elsewhere
from perfaudit.static.checks.eval_without_no_grad.escape import graph_escapes, proves_no_graph
from perfaudit.static.checks.eval_without_no_grad.eval_mode import handed_name
from perfaudit.static.checks.eval_without_no_grad.frozen import may_be_frozen
from perfaudit.static.checks.eval_without_no_grad.model_runs import by_models, records_graph, runs_model
from perfaudit.static.checks.eval_without_no_grad.surroundings import functions_around, gradients_are_off
from perfaudit.static.checks.eval_without_no_grad.unseen_calls import gives_data, unseen_call
from perfaudit.static.checks.eval_without_no_grad.wanted_gradients import needs_gradients
from perfaudit.static.registry import Proposal, Seen
from perfaudit.static.source import FUNCTIONS, LOOPS, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls, updates_weights
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.losses import arguments_of
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
    """Of a model whose parameters are asked for, the loops that run it and train nothing, in a file that trains.

    In whatever mode the model is: another function, or file, may have set it.
    """
    model = model_asked(source, call)
    if model and _first_asked(source)[model] is call:  # what is said of a model is said by its name, and once
        if not any(runs(source, loop, model) for loop in _loops_that_train(source).get(model, ())):
            return
        for loop, name in _evaluations(source).get(model, ()):
            is_test = _goes_through_test(loop) or _is_in_evaluation(source, loop)
            if not is_test and not goes_through_data(loop):
                continue
            is_test = is_test and not source.calls(".eval")  # else the mode is set somewhere
            if (seen := recorded_for_nothing(source, loop, name, is_test=is_test)) is not None:
                yield loop, seen


@remember
def _evaluations(source: Source) -> dict[str, list[tuple[Loop, str]]]:
    """The loops that train nothing, by the model that they may run, each with its name there: that of a parameter that is
    handed it.
    """
    found: dict[str, list[tuple[Loop, str]]] = {}
    for name, loops in _loops_that_train_nothing(source).items():
        for loop in loops:
            for model in {name, *_handed_to(source, loop, name)}:
                found.setdefault(model, []).append((loop, name))
    return found


def _handed_to(source: Source, loop: Loop, name: str) -> set[str]:
    """The models that calls in this file hand to a parameter of the function around a loop."""
    function = source.enclosing(loop, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or not any(a.arg == name for a in function.args.args):
        return set()
    return {
        handed_name(value)
        for use in callers(source, function)
        for parameter, value in arguments_of(use, function)
        if parameter == name
    }


@remember
def _first_asked(source: Source) -> dict[str, ast.Call]:
    """The first call that asks a model for its parameters, by the name of the model."""
    found: dict[str, ast.Call] = {}
    for call in source.calls(".parameters"):
        found.setdefault(dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else "", call)
    return found


@remember
def _loops_that_train_nothing(source: Source) -> dict[str, list[Loop]]:
    """The outermost loops that reach no backward pass and no optimizer step, by the name of each model that they may run."""
    trains: set[int] = set()
    pending: list[ast.AST] = [*backward_calls(source), *(c for c in source.calls(".step") if updates_weights(c))]
    while pending:
        for around in source.ancestors(pending.pop()):
            if id(around) not in trains:
                trains.add(id(around))
                pending += callers(source, around) if isinstance(around, FUNCTIONS) else ()
    loops = (loop for loop in walk(source.tree) if isinstance(loop, (ast.For, ast.While)) and id(loop) not in trains)
    return by_models(source, [loop for loop in loops if _is_outermost(source, loop, trains)])


def _is_outermost(source: Source, loop: Loop, trains: set[int]) -> bool:
    """Whether no loop around a loop, in the same function, trains nothing as well."""
    function = source.enclosing(loop, *FUNCTIONS)
    around = source.enclosing(loop, *LOOPS, within=function) if function is not None else source.enclosing(loop, *LOOPS)
    return around is None or id(around) in trains


@remember
def _loops_that_train(source: Source) -> dict[str, list[Loop]]:
    """The training loops, by the name of each model that they may run, also through a function of this file."""
    return by_models(source, (step.loop for step in step_loops(source)))


def model_asked(source: Source, call: ast.Call) -> str:
    """The model of `model.parameters()`; "" where it may record nothing."""
    model = dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if model == "self" or not source.imports_torch or source.mentions("volatile"):
        return ""
    return "" if model and may_be_frozen(source, model) else model


def recorded_for_nothing(
    source: Source,
    loop: Loop,
    model: str,
    ways: frozenset[str] = frozenset(),
    is_known: bool = True,
    is_test: bool = True,
) -> Seen | None:
    """What is said of a loop that runs the model and records a graph, of which nothing leaves the loop; None of any other.

    is_known: nothing is said where code that is not in this file may differentiate; else that is a condition. is_test: its
    model belongs in eval mode.
    """
    found = runs(source, loop, model, ways)
    if not found or not all(records_graph(source, run) for run in found):
        return None
    if gradients_are_off(source, found[0]) or calls_elsewhere(source, functions_around(source, loop) or []).off:
        return None
    if needs_gradients(source, loop, model) or proves_no_graph(loop, found):
        return None
    if graph_escapes(source, loop, found, in_order=not is_known):
        return None
    unseen = unseen_call(source, loop, found, model, ways)
    if unseen is not None and is_known:
        return None
    first = min(found, key=lambda run: (run.lineno, run.col_offset))
    is_told = unseen is None or gives_data(source, unseen)
    condition = "" if is_told or unseen is None else f", if `{source.brief(unseen)}` differentiates nothing"
    where = " in this file" if condition else ""  # what code elsewhere does is not known
    message = f"`{source.brief(first)}` evaluates, but records a graph, which no backward pass{where} uses"
    mode = ", and the model in eval mode" if is_test else ""
    return Seen(first, message, Proposal(f"run the loop under `torch.no_grad()`{mode}{condition}"))


def runs(source: Source, loop: Loop, model: str, ways: frozenset[str] = frozenset()) -> list[ast.Call]:
    return [node for node in walk(loop) if isinstance(node, ast.Call) and runs_model(source, node, model, ways)]


def _is_in_evaluation(source: Source, loop: Loop) -> bool:
    """Whether a loop is the outermost one of a function that evaluates by its name: `def evaluate_test_set(model, data)`."""
    function = source.enclosing(loop, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or not _EVALUATES.fullmatch(function.name.lower()):
        return False
    return source.enclosing(loop, *LOOPS, within=function) is None


def goes_through_data(loop: Loop) -> bool:
    """Whether a loop goes through something else than numbers, or counts it: a few samples are drawn by `for n in range(9)`."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    called = {last_name(node.func) for node in walk(loop.iter) if isinstance(node, ast.Call)}
    return "len" in called or not called & {"range", "xrange", "trange"}


def _goes_through_test(loop: Loop) -> bool:
    """Whether a loop goes through what has the name of the loader of a test: `for x, y in tqdm(test_loader)`."""
    if isinstance(loop, ast.While):
        return False
    over = loop.iter
    while isinstance(over, ast.Call) and last_name(over.func) in _AROUND and over.args:
        over = over.args[0]
    return isinstance(over, (ast.Name, ast.Attribute)) and bool(_OF_TESTS.fullmatch(last_name(over).lower()))
