"""PA704: DistributedDataParallel that keeps every gradient twice and copies between the two."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.distributed import DDP, only_evaluates
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, argument, is_true

_SPECIAL = regex(r"detach_\b|create_graph|register_comm_hook|dist(ributed\.|_)autograd|distributed\.rpc")
_CLEARS = regex(r"opt|adam|sgd|model|net", re.IGNORECASE)
_NO_GRADIENTS = regex(r"teacher|target|(^|_)ema(_|$)|momentum", re.IGNORECASE)  # averages of another model


@check("PA704", call=DDP)
def ddp_gradients_copied(source: Source, call: ast.Call) -> Iterator[Seen]:
    if argument(source, call, "gradient_as_bucket_view") is not ABSENT or only_evaluates(source, call):
        return
    if _are_detached_in_place(source) or _is_never_used(source, call):
        return
    model = call.args[0] if call.args else call
    if any(_NO_GRADIENTS.search(last_name(node)) for node in ast.walk(model)):
        return
    title = "let gradients be views of the buckets they are summed in"
    edits = None if _handles_gradients(source) else edit.add_keyword(source, call, "gradient_as_bucket_view", "True")
    yield Seen(
        call,
        f"`{source.brief(call.func)}` copies every gradient into the bucket it is summed in and back, "
        "and keeps memory for both",
        Proposal(title, edits),
    )


def _is_never_used(source: Source, call: ast.Call) -> bool:
    """Whether a function wraps a model and does nothing with it: it trains the model itself, and no gradient is copied."""
    parent = source.parent(call)
    if isinstance(parent, ast.Expr):
        return True
    if not (isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name)):
        return False
    name = parent.targets[0].id
    if source.enclosing(call, ast.FunctionDef) is None or "locals()" in source.text:
        return False  # another file may take it from here
    if any(name in each.names for each in source.nodes(ast.Global)):
        return False
    return not any(each.id == name and isinstance(each.ctx, ast.Load) for each in source.nodes(ast.Name))


def _are_detached_in_place(source: Source) -> bool:
    """Whether this file or one that runs with it calls `p.grad.detach_()`, which raises on views of a bucket."""
    if ".grad.detach_(" in source.text:
        return True
    return source.neighbours is not None and source.neighbours.program_carries("gradients detached in place")


def _handles_gradients(source: Source) -> bool:
    """Whether gradients are replaced, detached or kept, which views of a bucket may not stand; or another file may do so."""
    if not backward_calls(source) or source.says(_SPECIAL):
        return True
    if not any(
        _CLEARS.search(last_name(c.func.value)) for c in source.calls(".zero_grad") if isinstance(c.func, ast.Attribute)
    ):
        return True  # a trainer of its own may detach gradients in place before it clears them
    if any(
        k.arg == "set_to_none" and not is_true(source, k.value) for c in source.calls(".zero_grad") for k in c.keywords
    ):
        return True
    for gradient in source.nodes(ast.Attribute):
        if gradient.attr != "grad":
            continue
        parent = source.parent(gradient)
        is_read = isinstance(parent, (ast.Compare, ast.Attribute))  # `p.grad is None`, `p.grad.norm()`
        is_cleared = isinstance(parent, ast.Assign) and isinstance(parent.value, ast.Constant)
        if not is_read and not is_cleared:
            return True
    return False
