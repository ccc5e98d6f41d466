"""PA802: activation checkpointing in its reentrant form."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, argument, constant

POSITION = {"torch.utils.checkpoint.checkpoint": None, "torch.utils.checkpoint.checkpoint_sequential": 3}
TITLE = "recompute only what backward needs, without a backward pass inside backward"


@check("PA802", call=POSITION)
def checkpoint_reentrant(source: Source, call: ast.Call) -> Iterator[Seen]:
    name = source.qualified_name(call.func) or ""
    reentrant = argument(source, call, "use_reentrant", POSITION[name])
    if reentrant is UNKNOWN:
        return
    if reentrant is not ABSENT and constant(source, reentrant) is not True:
        return
    how = "without `use_reentrant`" if reentrant is ABSENT else "with `use_reentrant=True`"
    if _has_branch(source, call) or _returns_dict(source, call) or _is_left_out_on_purpose(source, call):
        return
    written_here = isinstance(reentrant, ast.Constant) and any(a is call for a in source.ancestors(reentrant))
    if reentrant is ABSENT:
        edits = edit.add_keyword(source, call, "use_reentrant", "False")
    else:
        edits = edit.replace(source, reentrant, "False") if written_here and isinstance(reentrant, ast.expr) else None
    yield Seen(
        call,
        f"`{source.brief(call.func)}` {how} recomputes its whole function in backward, in a backward pass of its own",
        Proposal(TITLE, edits),
    )


def _has_branch(source: Source, call: ast.Call) -> bool:
    """Whether the same function also calls the other form: for another version of torch, or by choice."""
    function = source.scope(call)
    return any(
        k.arg == "use_reentrant" and source.scope(k.value) is function and constant(source, k.value) is not True
        for k in source.nodes(ast.keyword)
    )


def _returns_dict(source: Source, call: ast.Call) -> bool:
    """Whether the result is read by text keys: the reentrant form gives tensors in a dict no gradient, the other form does."""
    parent = source.parent(call)
    reads: list[ast.AST | None] = [parent]
    if isinstance(parent, ast.Assign) and isinstance(target := parent.targets[0], ast.Name):
        reads += [source.parent(use) for use in source.uses_of(target, target.id)]
    return any(
        isinstance(r, ast.Subscript) and isinstance(r.slice, ast.Constant) and isinstance(r.slice.value, str)
        for r in reads
    )


def _is_left_out_on_purpose(source: Source, call: ast.Call) -> bool:
    """Whether a comment in the call, or behind it, speaks of the argument: `# use_reentrant=False`."""
    lines = source.text.split("\n")[call.lineno - 1 : call.end_lineno]
    return any("use_reentrant" in line.partition("#")[2] for line in lines)
