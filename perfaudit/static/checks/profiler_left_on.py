"""PA502: a profiler that records a whole training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import ABSENT, argument, constant, is_true

PROFILERS = (
    "torch.profiler.profile",
    "torch.autograd.profiler.profile",
    "torch.autograd.profiler.emit_nvtx",
    "torch.autograd.profiler.emit_itt",
)
SHORT = 1000  # steps; a loop of fewer is a measurement, not a training
_MEASURES = regex(r"profil|bench|(^|[/_])tests?([/_]|$)|measure|timing|trace")


@check("PA502", call=PROFILERS)
def profiler_left_on(source: Source, call: ast.Call) -> Iterator[Seen]:
    if argument(source, call, "schedule") is not ABSENT or _may_be_off(source, call):
        return
    item = source.parent(call)
    around = source.parent(item) if isinstance(item, ast.withitem) else None
    if not isinstance(around, (ast.With, ast.AsyncWith)):
        return
    if _MEASURES.search(source.path.lower()) or _is_chosen(source, call):
        return
    if not any(_is_long(source, step.loop) and _is_in(source, step.loop, around) for step in step_loops(source)):
        return
    is_profiler = "emit" not in (source.qualified_name(call.func) or "")
    cost = (
        "records every operation of the whole training, and keeps it"
        if is_profiler
        else "marks every operation of the whole training"
    )
    yield Seen(
        call,
        f"`{source.brief(call)}` {cost}",
        Proposal("profile a few steps with `torch.profiler.schedule`, under an option that is off by default"),
    )


def _may_be_off(source: Source, call: ast.Call) -> bool:
    """Whether `enabled` is passed, and not as True."""
    if source.qualified_name(call.func) == PROFILERS[0]:
        return any(k.arg is None for k in call.keywords)
    enabled = argument(source, call, "enabled", 0)
    return enabled is not ABSENT and not is_true(source, enabled)


def _is_chosen(source: Source, call: ast.Call) -> bool:
    """Whether a condition decides about it, or the function around it exists to measure."""
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, (ast.If, ast.IfExp)) and not is_main_guard(ancestor):
            return True
        if isinstance(ancestor, (*FUNCTIONS, ast.ClassDef)) and _MEASURES.search(ancestor.name.lower()):
            return True
    return False


def _is_in(source: Source, loop: ast.AST, around: ast.AST) -> bool:
    return any(ancestor is around for ancestor in source.ancestors(loop))


def _is_long(source: Source, loop: ast.AST) -> bool:
    """Whether nothing ends the loop after a few steps: a literal `range`, a `break`, a `return`."""
    if any(isinstance(node, (ast.Break, ast.Return)) for node in ast.walk(loop)):
        return False
    over = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    if (
        isinstance(over, ast.Call)
        and isinstance(over.func, ast.Name)
        and over.func.id in ("range", "islice")
        and over.args
    ):
        count = constant(source, over.args[-1])
        return not isinstance(count, int) or count >= SHORT
    return True
