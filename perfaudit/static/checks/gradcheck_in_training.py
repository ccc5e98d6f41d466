"""PA503: gradients compared with finite differences on every training step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.step_loops import step_loops

CHECKS = (
    "torch.autograd.gradcheck",
    "torch.autograd.gradgradcheck",
    "torch.autograd.gradcheck.gradcheck",
    "torch.autograd.gradcheck.gradgradcheck",
)


@check("PA503", call=CHECKS)
def gradcheck_in_training(source: Source, call: ast.Call) -> Iterator[Seen]:
    if not any(
        runs_each_time(source, call, root) and not _is_asked(source, call, root)
        for step in step_loops(source)
        for root in (step.loop, *step.helpers)
        if any(ancestor is root for ancestor in source.ancestors(call))
    ):
        return
    yield Seen(
        call,
        f"`{source.brief(call)}` runs the function twice for every number of its input, on every training step",
        Proposal("check gradients once, in a test, on a small input in double precision"),
        hot=True,
    )


def _is_asked(source: Source, call: ast.Call, root: ast.AST) -> bool:
    """Whether a condition inside the step decides about it."""
    return source.enclosing(call, ast.If, ast.IfExp, within=root) is not None
