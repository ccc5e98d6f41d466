"""Accumulated gradients that are summed over the ranks once a step: `no_sync` around all passes but the last."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.ddp_accumulation_without_no_sync import (
    ddp_accumulation_without_no_sync,
    passes_before_a_rare_step,
    word_of_sync,
)
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.distributed import DDP, ddp_calls
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import ABSENT, argument, constant
from perfaudit.tune.ranks.accumulations import Accumulation, accumulations
from perfaudit.tune.ranks.last_pass import as_before, why_known_late
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks, patch
from perfaudit.tune.ranks.rare_steps import step_not_told
from perfaudit.tune.ranks.unsynced_passes import step_elsewhere, use_of_gradients

_DEEPEST = 3  # functions that hand the wrapped model on
_SWALLOWS = regex(r"suppress|raises")  # contexts behind which a program goes on after an error
_SET_STATIC = regex(r"_set_static_graph")  # of torch, private
_STATISTICS = (
    "; running statistics of batch norm reach the other ranks once a step, too, so that what those evaluate in between, or "
    "behind passes that no step follows, has other statistics than now; the first rank's are as now"
)
_USUAL_NAME = "model"  # of the model in a function that gets it from another file


def candidates(sources: Sequence[Source], ranks: SeenRanks) -> Iterator[RankPatch]:
    """A patch that puts the passes of an accumulation into `no_sync`. Raises PatchRefused where it cannot be written."""
    if not any(ddp_calls(source) for source in sources):
        return
    for source in sources:
        found = accumulations(source)
        if len(found) == 1:
            if why := _why_not(sources, ranks):
                raise PatchRefused(f"no_sync is not tried: {why}")
            if place := step_elsewhere(sources, found[0]):
                raise PatchRefused(
                    f"no_sync is not tried: an optimizer steps at {place}, too, and not behind the last pass that "
                    f"{source.path}:{found[0].line} tells: gradients that no rank has sent may reach it"
                )
            yield _candidate(sources, source, found[0], ranks.tracks_statistics)
        elif found:
            places = ", ".join(f"{source.path}:{each.line}" for each in found[:4])
            raise PatchRefused(f"no_sync is not tried: gradients of several passes add up in several places: {places}")
        elif list(ddp_accumulation_without_no_sync(source, source.tree)):
            raise PatchRefused(
                f"no_sync is not tried: {source.path} accumulates gradients, and no condition of an optimizer's step "
                "tells which pass is the last one"
            )
        elif line := step_not_told(source):
            raise PatchRefused(
                f"no_sync is not tried: an optimizer steps behind some passes only, and the text in front of a pass does not "
                f"tell whether the condition of {source.path}:{line} will hold behind it"
            )
        elif why := _why_synced_already(source):
            raise PatchRefused(
                f"no_sync is not tried: whether a pass sums gradients over the ranks may be decided already: {why}"
            )


def _why_not(sources: Sequence[Source], ranks: SeenRanks) -> str:
    """Why passes of these models must all sum their gradients, whatever the loop says; "" where they need not."""
    for source in sources:
        if "sync" in (word := word_of_sync(source)):
            return f"whether a pass sums gradients over the ranks may be decided already: {source.path} says `{word}`"
        for call in ddp_calls(source):
            static = argument(source, call, "static_graph")
            if static is not ABSENT and not (isinstance(static, ast.expr) and constant(source, static) is False):
                return (
                    f"{source.path}:{call.lineno} may say static_graph, and torch learns that graph from a summed pass"
                )
        if source.says(_SET_STATIC):
            return f"{source.path} says _set_static_graph, and torch learns that graph from a summed pass"
    if ranks.changed_buffers:
        names = ", ".join(ranks.changed_buffers)
        return (
            f"steps change buffers of the model ({names}), and DistributedDataParallel sends the first rank's to the others "
            "behind summed passes only"
        )
    return ""


def _why_synced_already(source: Source) -> str:
    """Why a file that wraps a model may itself decide when gradients are summed; "" where nothing says so."""
    passes = passes_before_a_rare_step(source, also_synced=True)
    word = word_of_sync(source) if ddp_calls(source) else ""
    if word and (passes or "sync" in word):
        return f"{source.path} says `{word}`"
    return f"{source.path}:{passes[0][0].lineno} stands under a `with` of the project's own" if passes else ""


def _candidate(sources: Sequence[Source], source: Source, found: Accumulation, tracks_statistics: bool) -> RankPatch:
    """The patch of these passes. There is one, or one in each branch of a question."""
    block, backward = found.block, found.passes
    place = f"{source.path}:{backward[0].lineno}"
    last = _index(source, block, backward[0])
    if any(_index(source, block, call) != last for call in backward):
        raise PatchRefused(f"no_sync is not tried: several passes follow each other at {place}")
    if not _is_made_each_time(source, block[last], backward):
        raise PatchRefused(f"no_sync is not tried: the pass of {place} may be left out, and the step behind it made")
    model = _name_of_model(sources, source, block[: last + 1])
    if model is None:
        raise PatchRefused(f"no_sync is not tried: above {place} no model is run by the name of one that was wrapped")
    first = _index(source, block, model)
    test, between = found.test, block[0 if found.is_counted else first : found.end]
    if not found.is_counted:
        test, between = as_before(test, between)
    if why := why_known_late(sources, test, between):
        raise PatchRefused(f"no_sync is not tried: the condition of {source.path}:{found.line} {why}")
    is_last = found.is_last if ast.dump(test) == ast.dump(found.test) else ast.unparse(test)
    if why := use_of_gradients(sources, source, found, model):
        raise PatchRefused(f"no_sync is not tried: {why}")
    edits = edit.together(*_edits(source, block[first : last + 1], test, is_last, model))
    words = "sum gradients over the ranks once a step, in the last of its passes" + _STATISTICS * tracks_statistics
    return patch(source, backward[0], {"no_sync": True}, {"no_sync": False}, words, ("rounding",), edits)


def _edits(
    source: Source, statements: list[ast.stmt], is_last: ast.expr, text: str, model: ast.expr
) -> Iterator[edit.Edits | None]:
    """`with nullcontext() if ... else model.no_sync():` around the statements, and its imports.

    Where the text does not say that the model is wrapped in any case, the line asks: a model that is not has no `no_sync`.
    """
    nullcontext, imported = edit.name_for(source, "contextlib.nullcontext")
    yield imported
    test, name = text, dotted_name(model)
    if not (isinstance(model, ast.Name) and _is_wrapped(source, model)):
        wrapper, needed = edit.name_for(source, DDP)
        yield needed
        test = f"({test})" if isinstance(is_last, (ast.IfExp, ast.Lambda)) else test
        test = f"{test} or not isinstance({name}, {wrapper})"
    yield edit.wrap_block(source, statements, f"with {nullcontext}() if {test} else {name}.no_sync():")


def _is_made_each_time(source: Source, statement: ast.stmt, backward: Sequence[ast.Call]) -> bool:
    """Whether a statement makes one of these passes whenever it runs: by itself, under a `with`, in both branches of an `if`."""
    if isinstance(statement, ast.Expr):
        return any(statement.value is call for call in backward)
    if isinstance(statement, ast.With):
        if any(_SWALLOWS.search(source.text_of(item.context_expr)) for item in statement.items):
            return False
        return any(_is_made_each_time(source, each, backward) for each in statement.body)
    branches = (statement.body, statement.orelse) if isinstance(statement, ast.If) else ()
    return bool(branches) and all(
        any(_is_made_each_time(source, each, backward) for each in branch) for branch in branches
    )


def _name_of_model(sources: Sequence[Source], source: Source, block: Sequence[ast.stmt]) -> ast.expr | None:
    """The name under which the statements first run the model: one that surely is wrapped, else one of the name of such a model.

    It is called, or given to a function of the project, which `use_of_gradients` looks at.
    """
    calls = [call for statement in block for call in ast.walk(statement) if isinstance(call, ast.Call)]
    own = {function.name for each in sources for function in each.nodes(ast.FunctionDef)}
    given = [
        each
        for call in calls
        if last_name(call.func) in own
        for each in (*call.args, *(k.value for k in call.keywords))
    ]
    named = [each for each in (*(call.func for call in calls), *given) if dotted_name(each)]
    wrapped: list[ast.expr] = [name for name in named if isinstance(name, ast.Name) and _is_wrapped(source, name)]
    if not wrapped:
        names = _names_of_wrapped(sources)
        wrapped = [name for name in named if last_name(name) in names and not source.qualified_name(name)]
    return min(wrapped, key=lambda name: (name.lineno, name.col_offset), default=None)


def _names_of_wrapped(sources: Sequence[Source]) -> set[str]:
    """Last names of what a wrapped model is assigned to, and the usual one."""
    assigned = [source.parent(call) for source in sources for call in ddp_calls(source)]
    targets = [target for each in assigned if isinstance(each, ast.Assign) for target in each.targets]
    return ({last_name(target) for target in targets} - {""}) | {_USUAL_NAME}


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
