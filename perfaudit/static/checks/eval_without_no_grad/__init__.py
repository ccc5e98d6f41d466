"""PA801: an evaluation loop that records a graph for every batch."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from perfaudit.static.checks.eval_without_no_grad.built_in_eval_mode import given_by_builders
from perfaudit.static.checks.eval_without_no_grad.callers import calls_elsewhere
from perfaudit.static.checks.eval_without_no_grad.chosen_by_flag import evaluated_by_arguments, trained_or_evaluated
from perfaudit.static.checks.eval_without_no_grad.eval_mode import is_train_false, models_put_in_eval_mode
from perfaudit.static.checks.eval_without_no_grad.evaluated_only import evaluated_elsewhere, evaluated_only
from perfaudit.static.checks.eval_without_no_grad.frozen import (
    differentiates,
    may_be_frozen,
    records_nothing,
)
from perfaudit.static.checks.eval_without_no_grad.hooks import keeps_by_hook
from perfaudit.static.checks.eval_without_no_grad.kept_models import classes_kept
from perfaudit.static.checks.eval_without_no_grad.model_classes import classes_elsewhere
from perfaudit.static.checks.eval_without_no_grad.model_ways import ways_to_run
from perfaudit.static.checks.eval_without_no_grad.one_step import one_step
from perfaudit.static.checks.eval_without_no_grad.parts import whole_of_parts
from perfaudit.static.checks.eval_without_no_grad.surroundings import functions_around, gradients_are_off
from perfaudit.static.checks.eval_without_no_grad.told_within import is_told_within
from perfaudit.static.old_torch import indexes_a_number, needs_old_torch
from perfaudit.static.registry import Seen, check
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.elsewhere import class_of
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.raises_today import raises_today


@check("PA801", call=(".eval", ".train", ".parameters", ".load_state_dict", ".from_pretrained", "torch.load"))
def eval_without_no_grad(source: Source, call: ast.Call) -> Iterator[Seen]:
    found = _seen_in(source).get(id(call), ())
    if found and keeps_by_hook(source):
        return
    # A torch from before 1.0 may have no `no_grad` yet.
    yield from (seen._replace(severity="hint") if raises_today(source, seen.node) else seen for seen in found)


@functools.lru_cache(maxsize=4)  # two models that are put into eval mode for one loop make one finding
def _seen_in(source: Source) -> dict[int, list[Seen]]:
    """What is said of each `eval()` of a file; each loop once, for the first model that it evaluates.

    Where it has none, of the first `parameters()` of a model, of `load_state_dict()`, or of what loads a model.
    """
    found: dict[int, list[Seen]] = {}
    known: dict[int, Loop | Function] = {}
    demonstrations: set[int] = set()

    def note(call: ast.Call, loop: Loop | Function, seen: Seen) -> None:
        known[id(loop)] = loop
        if _demonstrates(source, loop):
            demonstrations.add(id(loop))
            seen = seen._replace(severity="hint")
        found.setdefault(id(call), []).append(seen)

    calls = [*source.calls(".eval"), *filter(is_train_false, source.calls(".train"))]
    loads = (".load_state_dict", ".from_pretrained", "torch.load")
    others = [call for name in (".parameters", *loads) for call in source.calls(name)]
    for call in calls or others:
        for loop, seen in _unrecorded_evaluations(source, call) if calls else _in_train_mode(source, call):
            if id(loop) not in known:
                note(call, loop, seen)
    if calls and _may_evaluate_more(source, list(known.values())):
        for call in source.calls(".parameters"):
            for loop, seen in _in_train_mode(source, call):
                if not any(_overlap(loop, other) for other in known.values()):
                    note(call, loop, seen)
    told = frozenset(known) - demonstrations
    kept = {key: [one for one in seen if not is_told_within(source, one, known, told)] for key, seen in found.items()}
    return {key: seen for key, seen in kept.items() if seen}


def _may_evaluate_more(source: Source, known: list[Loop | Function]) -> bool:
    """Whether a file has a loop beside these that runs a model which is asked for its parameters, with gradients, and has no
    backward pass in it.
    """
    asked = {last_name(call.func.value) for call in source.calls(".parameters") if isinstance(call.func, ast.Attribute)}
    trained = [call.lineno for call in source.calls(".backward")]
    for loop in source.nodes(ast.For) if trained and asked - {"", "self"} else ():
        lines = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
        if any(line in lines for line in trained) or any(_overlap(loop, other) for other in known):
            continue
        runs = (node for node in walk(loop) if isinstance(node, ast.Call) and last_name(node.func) in asked)
        if any(not in_no_grad(source, run) for run in runs):
            return True
    return False


def _overlap(loop: Loop | Function, other: Loop | Function) -> bool:
    return loop.lineno <= (other.end_lineno or 0) and other.lineno <= (loop.end_lineno or 0)


def _demonstrates(source: Source, loop: Loop | Function) -> bool:
    # Imported here: most files have nothing to tell.
    from perfaudit.static.checks.eval_without_no_grad.demonstrated import demonstrates

    return demonstrates(source, loop)


def _in_train_mode(source: Source, call: ast.Call) -> Iterator[tuple[Loop | Function, Seen]]:
    """The evaluations of a file that puts no model into eval mode."""
    # Imported here: most files that evaluate say so.
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "parameters"):
        from perfaudit.static.checks.eval_without_no_grad.loaded_models import evaluations_with_loaded_weights

        yield from evaluations_with_loaded_weights(source, call)
        return
    from perfaudit.static.checks.eval_without_no_grad.no_eval_mode import evaluated_in_training_mode, model_asked
    from perfaudit.static.checks.eval_without_no_grad.tested_by_method import tests_by_method

    yield from evaluated_in_training_mode(source, call)
    yield from tests_by_method(source, call, model_asked(source, call))


def _unrecorded_evaluations(source: Source, call: ast.Call) -> Iterator[tuple[Loop | Function, Seen]]:
    models = [(m, s) for m, s in models_put_in_eval_mode(source, call) if m != "self" or _is_of_module(source, call)]
    models += given_by_builders(source, call)
    if not models or not source.imports_torch or gradients_are_off(source, call):
        return
    if source.mentions("volatile") and (needs_old_torch(source) or indexes_a_number(source)):
        return  # `Variable(x, volatile=True)` records nothing there
    classes = [*classes_elsewhere(source, call)]
    kept = classes_kept(source, call.func) if isinstance(call.func, ast.Attribute) else ()
    here = [*_classes_here(source, call)]
    seen_classes = (*classes, *kept, *here)
    if any(records_nothing(inside, found) or differentiates(inside, found) for inside, found in seen_classes):
        return
    ways = ways_to_run([*classes, *here])
    whole = whole_of_parts(source, source.statement(call))
    for model, statement in models:
        if may_be_frozen(source, model):
            continue
        found = (
            *trained_or_evaluated(source, statement, model),
            *evaluated_only(source, call, statement, model, ways),
            *evaluated_by_arguments(source, statement, model),
            *evaluated_elsewhere(source, statement, model, ways),
            *one_step(source, statement, model, ways),
        )
        for loop, seen in found:
            if whole is not None and model == whole.name and not whole.is_all:
                seen = seen._replace(message=seen.message.replace(" in eval mode", " with parts in eval mode", 1))
            if functions_around(source, loop) is None:
                continue
            elsewhere = calls_elsewhere(source, functions_around(source, call) or [])
            if not elsewhere.off:
                yield loop, seen
            elif elsewhere.on:  # the reader may look at the call that is as it should be
                yield loop, seen._replace(message=f"{seen.message}, where {elsewhere.on} calls it outside of `no_grad`")


def _is_of_module(source: Source, call: ast.Call) -> bool:
    """Whether `self.eval()` stands in a class of modules: a trainer may have an `eval` of its own."""
    # Imported here: most files ask a model that they made.
    from perfaudit.static.checks.eval_without_no_grad.objects import is_module

    own = source.enclosing(call, ast.ClassDef)
    return isinstance(own, ast.ClassDef) and is_module(source, own, source.neighbours)


def _classes_here(source: Source, call: ast.Call) -> Iterator[tuple[Source, ast.ClassDef]]:
    """The class of this file that the model of `model.eval()` is an object of, or that calls it on `self`."""
    model = call.func.value if isinstance(call.func, ast.Attribute) else call
    if isinstance(model, ast.Name) and model.id == "self":
        own = source.enclosing(call, ast.ClassDef)
        if isinstance(own, ast.ClassDef) and not any(f.name == "eval" for f in own.body if isinstance(f, FUNCTIONS)):
            yield source, own
    elif (found := class_of(source, model)) is not None and found[0] is source and isinstance(found[1], ast.ClassDef):
        yield source, found[1]
