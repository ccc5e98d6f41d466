"""Evaluations of a model that is given saved weights, in a file that never trains and never puts a model into eval mode."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.eval_without_no_grad.built_in_eval_mode import given_by_callers
from perfaudit.static.checks.eval_without_no_grad.eval_mode import MOVES
from perfaudit.static.checks.eval_without_no_grad.evaluations import MAX_CALLS, evaluations_in_called, outermost_loops
from perfaudit.static.checks.eval_without_no_grad.frozen import (
    differentiates,
    may_be_frozen,
    records_nothing,
)
from perfaudit.static.checks.eval_without_no_grad.model_classes import classes_elsewhere
from perfaudit.static.checks.eval_without_no_grad.model_runs import runs_inside
from perfaudit.static.checks.eval_without_no_grad.model_ways import ways_to_run
from perfaudit.static.checks.eval_without_no_grad.no_eval_mode import goes_through_data, recorded_for_nothing, runs
from perfaudit.static.registry import Seen
from perfaudit.static.source import FUNCTIONS, LOOPS, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.elsewhere import class_of
from perfaudit.static.understanding.model_parts import builds_of_library
from perfaudit.static.understanding.names import dotted_name, last_name

_OPTIMIZER = regex(r"optim(?!al|um)", words="optim")


def evaluations_with_loaded_weights(source: Source, call: ast.Call) -> Iterator[tuple[Loop, Seen]]:
    """The loops behind `model.load_state_dict()`, `model = torch.load()` or `model = BertModel.from_pretrained()` that run the
    model, in a file that never trains.

    It has no backward pass, no optimizer, and puts no model into training mode: there batch norm or dropout is meant to behave
    as in training. Nobody there could use a graph.
    """
    if not source.imports_torch or source.mentions("volatile") or source.calls(".train") or _may_train(source):
        return
    for model, statement in _models_loaded(source, call):
        if may_be_frozen(source, model):
            continue
        loops = [
            (loop, name)
            for loop, name in _loops_behind(source, statement, model)
            if any(goes_through_data(each) for each in walk(loop) if isinstance(each, LOOPS))
        ]
        if not loops:  # asked before the classes, which may lie in other files
            continue
        classes = [*classes_elsewhere(source, call), *_class_here(source, call)]
        if any(records_nothing(inside, found) or differentiates(inside, found) for inside, found in classes):
            continue
        ways = ways_to_run(classes)
        is_test = last_name(call.func) != "from_pretrained"
        told = [
            (loop, name, seen)
            for loop, name in loops
            if (seen := recorded_for_nothing(source, loop, name, ways, is_known=False, is_test=is_test)) is not None
        ]
        for loop, name, seen in told:
            inner = [runs_inside(source, run, name, ways) for run in runs(source, loop, name, ways)]
            if not all(each and all(_lies_in_one(source, run, told) for run in each) for each in inner):
                yield loop, seen  # else it is told by the loops of the functions that it calls


@remember
def _may_train(source: Source) -> bool:
    """Whether a file runs a backward pass or steps an optimizer, or lets code that is not torch's have an optimizer."""
    if backward_calls(source) or source.calls(".step"):
        return True
    if not source.mentions("optim"):
        return False
    for call in source.nodes(ast.Call):
        if (source.qualified_name(call.func) or "").startswith("torch."):
            continue
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        made = (source.qualified_name(value.func) or "" for value in given if isinstance(value, ast.Call))
        named = [*map(last_name, given), *(keyword.arg or "" for keyword in call.keywords)]
        if any(map(_OPTIMIZER.search, named)) or any(name.startswith("torch.optim.") for name in made):
            return True
    return False


def _models_loaded(source: Source, call: ast.Call) -> list[tuple[str, ast.stmt]]:
    """The model that a call loads, with the statement behind which it has its weights; also where a function returns it."""
    statement = source.statement(call)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict":
        model = dotted_name(call.func.value)
    else:
        model = _bound_to_loaded(statement, call)
    if last_name(call.func) == "from_pretrained" and ("." in model or not _is_of_transformers(source, call)):
        return []  # one that is a part of another model is trained wherever that is
    if not model or model == "self":
        return []
    return [(model, statement), *given_by_callers(source, call, model)]


def _is_of_transformers(source: Source, call: ast.Call) -> bool:
    """Whether a call loads a model of transformers, which comes in eval mode: no tokenizer."""
    name = source.qualified_name(call.func) or ""
    return name.startswith("transformers.") and builds_of_library(source, call)


def _bound_to_loaded(statement: ast.stmt, call: ast.Call) -> str:
    """The name of `model = torch.load(path).to(device)`; "" where something else is made of what is loaded."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    value: ast.AST = statement.value
    while value is not call:
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr not in MOVES:
            return ""
        value = value.func.value
    return dotted_name(statement.targets[0])


def _lies_in_one(source: Source, run: ast.Call, told: list[tuple[Loop, str, Seen]]) -> bool:
    """Whether a run stands in one of the loops that are told."""
    around = {id(ancestor) for ancestor in source.ancestors(run)}
    return any(id(loop) in around for loop, _, _ in told)


def _class_here(source: Source, call: ast.Call) -> Iterator[tuple[Source, ast.ClassDef]]:
    """The class of this file whose object the model of `model.load_state_dict()` is."""
    model = call.func.value if isinstance(call.func, ast.Attribute) else call
    found = class_of(source, model)
    if found is not None and found[0] is source and isinstance(found[1], ast.ClassDef):
        yield source, found[1]


def _loops_behind(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Loop, str]]:
    """The outermost loops behind a statement in its function, in those called there with the model, and in the methods of an
    object that keeps the model.
    """
    scope = source.scope(statement)
    for loop in _loops_by_scope(source).get(id(scope), ()):
        around = source.enclosing(loop, *LOOPS, within=scope)
        if loop.lineno > statement.lineno and (around is None or around.lineno < statement.lineno):
            yield loop, model
    for call in source.nodes(ast.Call):
        if call.lineno > statement.lineno and source.scope(call) is scope:
            yield from evaluations_in_called(source, call, model, MAX_CALLS)
    owner = source.parent(scope) if model.startswith("self.") else None
    for method in owner.body if isinstance(owner, ast.ClassDef) else ():
        if isinstance(method, FUNCTIONS) and method is not scope:
            yield from ((loop, model) for item in method.body for loop in outermost_loops(item))


@remember
def _loops_by_scope(source: Source) -> dict[int, list[Loop]]:
    found: dict[int, list[Loop]] = {}
    for loop in walk(source.tree):
        if isinstance(loop, (ast.For, ast.While)):
            found.setdefault(id(source.scope(loop)), []).append(loop)
    return found
