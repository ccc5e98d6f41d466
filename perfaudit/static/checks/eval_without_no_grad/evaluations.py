"""The loops in which a model is in eval mode: behind the statement that sets it, around it, and in functions that get it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.eval_without_no_grad.built_in_eval_mode import given_by_builders
from perfaudit.static.checks.eval_without_no_grad.eval_mode import (
    ends_eval_mode,
    handed_name,
    is_handed_on,
    is_train_false,
    models_put_in_eval_mode,
    plain_statements,
)
from perfaudit.static.checks.eval_without_no_grad.model_runs import has_same
from perfaudit.static.checks.eval_without_no_grad.surroundings import plain_decorators, plain_surroundings
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.names import dotted_name

MAX_CALLS = 3  # functions through which the model is handed from the one that puts it into eval mode


def loops_behind(source: Source, statement: ast.stmt, model: str) -> Iterator[Loop]:
    """The outermost loops behind a statement in its block, as long as the model stays in eval mode."""
    for item in _statements_behind(source, statement, model):
        yield from outermost_loops(item)
        if any(ends_eval_mode(source, node, model) for node in walk(item)):
            return


def evaluations(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Loop, str]]:
    """The loops in which the model is in eval mode, with its name there.

    Behind the statement, around it where each turn puts the model into eval mode, and in functions that are handed the model.
    """
    around = source.parent(statement)
    if isinstance(around, LOOPS) and not ends_eval_mode(source, around, model):
        yield around, model
    if is_handed_on(statement, model):
        yield from _evaluations_by_call(source, statement, model)
    for item in _statements_behind(source, statement, model):
        yield from ((loop, model) for loop in outermost_loops(item))
        if any(ends_eval_mode(source, node, model) for node in walk(item)):
            return
        yield from _evaluations_by_call(source, item, model)


def _statements_behind(source: Source, statement: ast.stmt, model: str) -> Iterator[ast.stmt]:
    """The statements behind one that puts the model into eval mode; also behind a condition that does so in each branch."""
    block = source.block(statement)
    rest = block[next(n for n, item in enumerate(block) if item is statement) + 1 :]
    yield from rest
    choice = source.parent(statement)
    if not isinstance(choice, ast.If) or not choice.orelse:
        return
    if all(_leaves_in_eval_mode(source, branch, model) for branch in (choice.body, choice.orelse)):
        yield from _statements_behind(source, choice, model)


def _leaves_in_eval_mode(source: Source, block: list[ast.stmt], model: str) -> bool:
    """Whether a branch puts the model into eval mode, by itself or in each branch of a condition, and does not end that."""
    is_put = False
    for item in block:
        if (model, id(item)) in _put_in_eval_mode(source):
            is_put = True
        elif isinstance(item, ast.If) and item.orelse:
            is_put = all(_leaves_in_eval_mode(source, branch, model) for branch in (item.body, item.orelse)) or (
                is_put and not any(ends_eval_mode(source, node, model) for node in walk(item))
            )
        elif any(ends_eval_mode(source, node, model) for node in walk(item)):
            is_put = False
    return is_put


@remember
def _put_in_eval_mode(source: Source) -> frozenset[tuple[str, int]]:
    """The models of a file, each with the id of a statement that puts it into eval mode."""
    calls = [*source.calls(".eval"), *filter(is_train_false, source.calls(".train"))]
    put = (
        pair for call in calls for pair in (*models_put_in_eval_mode(source, call), *given_by_builders(source, call))
    )
    return frozenset((model, id(statement)) for model, statement in put)


def _evaluations_by_call(
    source: Source, statement: ast.stmt, model: str, calls: int = MAX_CALLS
) -> Iterator[tuple[Loop, str]]:
    """The loops of functions of this file that a statement calls with the model, directly or through others."""
    for call in (n for plain in plain_statements(statement) for n in walk(plain) if isinstance(n, ast.Call)):
        yield from evaluations_in_called(source, call, model, calls)


def evaluations_in_called(source: Source, call: ast.Call, model: str, calls: int) -> Iterator[tuple[Loop, str]]:
    """The loops of the function of this file that a call runs with the model, and of those that it hands the model to."""
    function = called_function(source, call)
    if function is None or not plain_decorators(function) or not plain_surroundings(source, call):
        return
    taken = {model} if has_same(source, call, function, model) else set()
    for name in names_given(call, function, {model}) | own_names(call, model) | taken:
        yield from in_eval_mode_still(source, function, name, calls - 1)


def in_eval_mode_still(source: Source, function: Function, model: str, calls: int) -> Iterator[tuple[Loop, str]]:
    for item in function.body:
        yield from ((loop, model) for loop in outermost_loops(item))
        if any(ends_eval_mode(source, node, model) for node in walk(item)):
            return
        if calls:
            yield from _evaluations_by_call(source, item, model, calls)


def own_names(call: ast.Call, model: str) -> set[str]:
    """The name of a model that an object keeps, in a method that is called on the same object."""
    is_own = isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) == "self"
    return {model} if is_own and model.startswith("self.") else set()


def outermost_loops(statement: ast.stmt) -> Iterator[Loop]:
    if isinstance(statement, LOOPS):
        yield statement
    if isinstance(statement, (*LOOPS, *FUNCTIONS, ast.ClassDef)):
        return
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from outermost_loops(child)
        elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
            for inner in child.body:
                yield from outermost_loops(inner)


def names_given(call: ast.Call, function: Function, models: set[str]) -> set[str]:
    """The parameters that a call of a function fills with one of the models."""
    parameters = [a.arg for a in function.args.args][isinstance(call.func, ast.Attribute) :]
    given = [*zip(parameters, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
    return {name for name, value in given if name and handed_name(value) in models}
