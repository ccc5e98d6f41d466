"""Accumulated gradients that are summed over the ranks once a step: `no_sync` around all passes but the last."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.static import edit
from perfaudit.static.checks.ddp_accumulation_without_no_sync import (
    ddp_accumulation_without_no_sync,
    passes_before_a_rare_step,
    word_of_sync,
)
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.tune.ranks.last_pass import why_known_late
from perfaudit.tune.ranks.patches import Candidate, Ranks, Refused, patch
from perfaudit.tune.ranks.unsynced_passes import step_elsewhere, use_of_gradients

_DEEPEST = 3  # functions that hand the wrapped model on


def candidates(sources: Sequence[Source], ranks: Ranks) -> Iterator[Candidate]:
    """A patch that puts the passes of an accumulation into `no_sync`. Raises Refused where it cannot be written."""
    for source in sources:
        passes = passes_before_a_rare_step(source)
        if len(passes) == 1:
            _, condition = passes[0]
            if place := step_elsewhere(sources, condition):
                raise Refused(
                    f"no_sync is not tried: an optimizer steps at {place}, too, and not under the condition of "
                    f"{source.path}:{condition.lineno}: gradients that no rank has sent may reach it"
                )
            yield _candidate(sources, source, *passes[0])
        elif list(ddp_accumulation_without_no_sync(source, source.tree)):
            raise Refused(
                f"no_sync is not tried: {source.path} accumulates gradients, and no condition of an optimizer's step "
                "tells which pass is the last one"
            )
        elif why := _why_synced_already(source):
            raise Refused(
                f"no_sync is not tried: whether a pass sums gradients over the ranks may be decided already: {why}"
            )


def _why_synced_already(source: Source) -> str:
    """Why a file that wraps a model may itself decide when gradients are summed; "" where nothing says so."""
    passes = passes_before_a_rare_step(source, also_synced=True)
    word = word_of_sync(source) if ddp_calls(source) else ""
    if word and (passes or "sync" in word):
        return f"{source.path} says `{word}`"
    return f"{source.path}:{passes[0][0].lineno} stands under a `with` of the project's own" if passes else ""


def _candidate(sources: Sequence[Source], source: Source, backward: ast.Call, condition: ast.If) -> Candidate:
    block = source.block(condition)
    place = f"{source.path}:{backward.lineno}"
    last = _index(source, block, backward)
    found = [
        (index, call.func)
        for index, statement in enumerate(block[: last + 1])
        for call in ast.walk(statement)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and _is_wrapped(source, call.func)
    ]
    if not found:
        raise Refused(
            f"no_sync is not tried: above {place} no model is called that was wrapped, in any case, under its name"
        )
    first, model = found[0]
    between = block[first : block.index(condition)]
    if why := why_known_late(sources, condition.test, between):
        raise Refused(f"no_sync is not tried: the condition of {source.path}:{condition.lineno} {why}")
    if why := use_of_gradients(sources, source, condition, model.id):
        raise Refused(f"no_sync is not tried: {why}")
    nullcontext, imported = edit.name_for(source, "contextlib.nullcontext")
    header = f"with {nullcontext}() if {source.text_of(condition.test)} else {model.id}.no_sync():"
    edits = edit.together(edit.wrap_block(source, block[first : last + 1], header), imported)
    words = "sum gradients over the ranks once a step, in the last of its passes"
    return patch(source, backward, {"no_sync": True}, {"no_sync": False}, words, ("rounding",), edits)


def _is_wrapped(source: Source, name: ast.Name, depth: int = _DEEPEST) -> bool:
    """Whether a name is the wrapped model in any case: what is wrapped under a condition has no `no_sync` without it."""
    scope = source.scope(name)
    for wrapping in ddp_calls(source):
        assigned = source.parent(wrapping)
        if (
            isinstance(assigned, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == name.id for target in assigned.targets)
            and source.scope(assigned) in (scope, source.tree)
            and (source.scope(assigned) is scope or name.id not in source.bound_in(scope))
            and not any(
                isinstance(each, (ast.If, ast.Try)) and not is_main_guard(each) for each in source.ancestors(assigned)
            )
        ):
            return True
    bindings = source.lookup(name)
    if not (depth and len(bindings) == 1 and isinstance(bindings[0], ast.arg) and isinstance(scope, FUNCTIONS)):
        return False
    calls = callers(source, scope)
    given = [value for call in calls for parameter, value in arguments_of(call, scope) if parameter == bindings[0].arg]
    return (
        bool(given)
        and len(given) == len(calls)
        and all(isinstance(value, ast.Name) and _is_wrapped(source, value, depth - 1) for value in given)
    )


def _index(source: Source, block: Sequence[ast.stmt], node: ast.AST) -> int:
    around = [node, *source.ancestors(node)]
    return next(index for index, statement in enumerate(block) if any(statement is each for each in around))
