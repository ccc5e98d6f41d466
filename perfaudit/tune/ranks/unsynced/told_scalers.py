"""Accumulations in which one call makes both the pass and the step: `loss_scaler(loss, optimizer, update_grad=(i + 1) % n == 0)`.

So MAE, Swin and what was made of them train. The class of such a scaler is one of the project's own, whose `__call__` runs the
backward pass, and all that reads gradients under `if update_grad:`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.names import last_name
from perfaudit.tune.ranks.project_functions import class_made
from perfaudit.tune.ranks.unsynced.accumulations import Accumulation, is_step
from perfaudit.tune.ranks.unsynced.rare_steps import is_rare

_READS = regex(r"\.grad\b|clip_grad|unscale_")
_CALLED_BESIDE = {"scale", "backward", "hasattr", "isinstance", "float", "bool"}  # outside of the question


def told_passes(sources: Sequence[Source], source: Source) -> Iterator[Accumulation]:
    """Those of a file, each with the code of the scaler's own file that makes its steps."""
    for call in backward_calls(source):
        if last_name(call.func) == "backward" or (scaler := _call_of_scaler(sources, call)) is None:
            continue
        told = {name: value for name, value in arguments_of(call, scaler) if is_rare(value)}
        question = _question(scaler, set(told))
        if question is None or len(told) != 1:
            continue
        (test,) = told.values()
        block = source.block(source.statement(call))
        place = next(index for index, each in enumerate(block) if each is source.statement(call))
        yield Accumulation(
            [call], block, place, source.text_of(test), test, call.lineno, question.body, makes_steps=True
        )


def _call_of_scaler(sources: Sequence[Source], call: ast.Call) -> ast.FunctionDef | None:
    """The `__call__` of the class that all values of a scaler's name are objects of; None where that is none of the project."""
    values = [
        (source, node.value)
        for source in sources
        for node in source.nodes(ast.Assign)
        if any(last_name(target) == last_name(call.func) for target in node.targets)
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
    ]
    made = [class_made(sources, source, value) if isinstance(value, ast.Call) else None for source, value in values]
    definition = made[0] if made else None
    if definition is None or definition.bases or any(each is not definition for each in made):
        return None
    methods = [each for each in definition.body if isinstance(each, ast.FunctionDef) and each.name == "__call__"]
    return methods[0] if len(methods) == 1 else None


def _question(scaler: ast.FunctionDef, told: set[str]) -> ast.If | None:
    """The `if update_grad:` behind the backward pass, where all else neither reads gradients nor steps."""
    asked = [each for each in scaler.body if isinstance(each, ast.If) and last_name(each.test) in told]
    if len(asked) != 1 or not isinstance(asked[0].test, ast.Name):
        return None
    place = next(index for index, each in enumerate(scaler.body) if each is asked[0])
    beside = [*scaler.body[:place], *asked[0].orelse, *scaler.body[place + 1 :]]
    calls = [node for each in beside for node in ast.walk(each) if isinstance(node, ast.Call)]
    passes = [each for each in scaler.body[:place] if isinstance(each, ast.Expr) and _is_pass(each.value)]
    is_quiet = {last_name(each.func) for each in calls} <= _CALLED_BESIDE and not any(
        _READS.search(ast.unparse(each)) for each in beside
    )
    steps = any(is_step(node) for each in asked[0].body for node in ast.walk(each))
    return asked[0] if is_quiet and steps and len(passes) == 1 else None


def _is_pass(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "backward"
