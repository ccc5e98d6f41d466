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
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.distributed import DDP, ddp_calls
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import ABSENT, argument, constant
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks, patch
from perfaudit.tune.ranks.unsynced.accumulations import Accumulation, accumulations
from perfaudit.tune.ranks.unsynced.agreed_conditions import why_ranks_differ
from perfaudit.tune.ranks.unsynced.hidden_steps import hidden_step
from perfaudit.tune.ranks.unsynced.last_pass import as_before, why_known_late
from perfaudit.tune.ranks.unsynced.model_names import is_wrapped, run_of_model
from perfaudit.tune.ranks.unsynced.passes import step_elsewhere, use_of_gradients
from perfaudit.tune.ranks.unsynced.rare_steps import step_not_told
from perfaudit.tune.ranks.unsynced.told_scalers import told_passes

_SWALLOWS = regex(r"suppress|raises")  # contexts behind which a program goes on after an error
_SET_STATIC = regex(r"_set_static_graph")  # of torch, private
_STATISTICS = (
    "; running statistics of batch norm reach the other ranks once a step, too, so that what those evaluate in between, or "
    "behind passes that no step follows, has other statistics than now; the first rank's are as now"
)


def candidates(sources: Sequence[Source], ranks: SeenRanks) -> Iterator[RankPatch]:
    """A patch that puts the passes of an accumulation into `no_sync`. Raises PatchRefused where it cannot be written."""
    if not any(ddp_calls(source) for source in sources):
        return
    is_found = False
    for source in sources:
        found = [*accumulations(source), *told_passes(sources, source)]
        if len(found) == 1 or _are_apart(source, found):
            if why := _why_not(sources, ranks):
                raise PatchRefused(f"no_sync is not tried: {why}")
            if place := step_elsewhere(sources, found):
                raise PatchRefused(
                    f"no_sync is not tried: an optimizer steps at {place}, too, and not behind the last pass that "
                    f"{source.path}:{found[0].line} tells: gradients that no rank has sent may reach it"
                )
            is_found = True
            yield _candidate(sources, source, found, ranks.tracks_statistics)
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
    if not is_found and (why := hidden_step(sources)):
        raise PatchRefused(f"no_sync is not tried: {why}")


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
        if (line := _line_of_join(source)) is not None:
            return (
                f"{source.path}:{line} lets ranks make different numbers of passes, and those that are done stand in for them in "
                "summed passes"
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


def _line_of_join(source: Source) -> int | None:
    """The line of `with model.join():`, or of `with Join([model]):`; None for no such line."""
    calls = (item.context_expr for node in source.nodes(ast.With) for item in node.items)
    return next(
        (call.lineno for call in calls if isinstance(call, ast.Call) and last_name(call.func) in ("join", "Join")), None
    )


def _why_synced_already(source: Source) -> str:
    """Why a file that wraps a model may itself decide when gradients are summed; "" where nothing says so."""
    passes = passes_before_a_rare_step(source, also_synced=True)
    word = word_of_sync(source) if ddp_calls(source) else ""
    if word and (passes or "sync" in word):
        return f"{source.path} says `{word}`"
    return f"{source.path}:{passes[0][0].lineno} stands under a `with` of the project's own" if passes else ""


def _are_apart(source: Source, found: Sequence[Accumulation]) -> bool:
    """Whether each of several accumulations is in a function of its own, as a training and one that distills are."""
    functions = [source.enclosing(each.passes[0], *FUNCTIONS) for each in found]
    return bool(found) and None not in functions and len({id(each) for each in functions}) == len(found)


def _candidate(
    sources: Sequence[Source], source: Source, found: Sequence[Accumulation], tracks_statistics: bool
) -> RankPatch:
    """The patch of these accumulations, of one model."""
    parts = [_part(sources, source, each, [other for other in found if other is not each]) for each in found]
    if len({name for name, _ in parts}) > 1:
        places = ", ".join(f"{source.path}:{each.line}" for each in found)
        raise PatchRefused(f"no_sync is not tried: gradients of several models add up: {places}")
    edits = edit.together(*(edits for _, edits in parts))
    edits = None if edits is None else tuple(dict.fromkeys(edits))  # one import
    words = "sum gradients over the ranks once a step, in the last of its passes" + _STATISTICS * tracks_statistics
    place = found[0].passes[0]
    return patch(source, place, {"no_sync": True}, {"no_sync": False}, words, ("rounding",), edits)


def _part(
    sources: Sequence[Source], source: Source, found: Accumulation, others: Sequence[Accumulation]
) -> tuple[str, edit.Edits | None]:
    """The name of the model, and the edits, of one accumulation. It has one pass, or one in each branch of a question.

    others: in other functions, which are patched as well.
    """
    block, backward = found.block, found.passes
    place = f"{source.path}:{backward[0].lineno}"
    last = _index(source, block, backward[0])
    if any(_index(source, block, call) != last for call in backward):
        raise PatchRefused(f"no_sync is not tried: several passes follow each other at {place}")
    if not _is_made_each_time(source, block[last], backward):
        raise PatchRefused(f"no_sync is not tried: the pass of {place} may be left out, and the step behind it made")
    run = run_of_model(sources, source, block[: last + 1])
    if run is None:
        raise PatchRefused(f"no_sync is not tried: above {place} no model is run by the name of one that was wrapped")
    first, model = _index(source, block, run.place), run.name
    test, between = found.test, block[0 if found.is_counted else first : found.end]
    if not found.is_counted:
        test, between = as_before(test, between)
    loop = source.enclosing(backward[0], *LOOPS)
    why = why_known_late(sources, source, test, between)
    why = why or (why_ranks_differ(found.test, loop) if isinstance(loop, LOOPS) else "")
    if why:
        raise PatchRefused(f"no_sync is not tried: the condition of {source.path}:{found.line} {why}")
    is_last = found.is_last if ast.dump(test) == ast.dump(found.test) else ast.unparse(test)
    if why := use_of_gradients(sources, source, found, model, others):
        raise PatchRefused(f"no_sync is not tried: {why}")
    return dotted_name(model), edit.together(*_edits(source, block[first : last + 1], test, is_last, model))


def _edits(
    source: Source, statements: list[ast.stmt], is_last: ast.expr, text: str, model: ast.expr
) -> Iterator[edit.Edits | None]:
    """`with nullcontext() if ... else model.no_sync():` around the statements, and its imports.

    Where the text does not say that the model is wrapped in any case, the line asks: a model that is not has no `no_sync`.
    """
    nullcontext, imported = edit.name_for(source, "contextlib.nullcontext")
    yield imported
    test, name = text, dotted_name(model)
    if not (isinstance(model, ast.Name) and is_wrapped(source, model)):
        wrapper, needed = edit.name_for(source, DDP)
        yield needed
        test = f"({test})" if isinstance(is_last, (ast.IfExp, ast.Lambda)) else test
        test = f"{test} or not isinstance({name}, {wrapper})"
    yield edit.wrap_block(source, statements, f"with {nullcontext}() if {test} else {name}.no_sync():")


def _is_made_each_time(source: Source, statement: ast.stmt, backward: Sequence[ast.Call]) -> bool:
    """Whether a statement makes one of these passes whenever it runs: by itself, under a `with`, in both branches of an `if`."""
    if isinstance(statement, (ast.Expr, ast.Assign)):
        return any(statement.value is call for call in backward)
    if isinstance(statement, ast.With):
        if any(_SWALLOWS.search(source.text_of(item.context_expr)) for item in statement.items):
            return False
        return any(_is_made_each_time(source, each, backward) for each in statement.body)
    branches = (statement.body, statement.orelse) if isinstance(statement, ast.If) else ()
    return bool(branches) and all(
        any(_is_made_each_time(source, each, backward) for each in branch) for branch in branches
    )


def _index(source: Source, block: Sequence[ast.stmt], node: ast.AST) -> int:
    around = [node, *source.ancestors(node)]
    return next(index for index, statement in enumerate(block) if any(statement is each for each in around))
