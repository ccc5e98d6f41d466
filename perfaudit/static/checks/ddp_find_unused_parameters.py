"""PA702: DistributedDataParallel that looks for unused parameters in every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.distributed import DDP, only_evaluates
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, argument, is_true

LIGHTNING = tuple(
    f"{package}.strategies.{name}"
    for package in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")
    for name in ("DDPStrategy", "ddp.DDPStrategy")
)
_REASON = regex(r"unused|not (actually )?used|n't (actually )?used|need(ed|s)|necessary|required", re.IGNORECASE)
ACCELERATE = ("accelerate.DistributedDataParallelKwargs", "accelerate.utils.DistributedDataParallelKwargs")

_FREEZES = regex(r"(^|_)(un_?)?freez|set_(requires_grad|trainable)")  # methods of a model, and functions
PICKS_PARTS = regex(r"layer_?drop|supernet|num_experts|n_experts", re.IGNORECASE)  # each step runs other layers


@check("PA702", call=(DDP, *LIGHTNING, *ACCELERATE))
def ddp_find_unused_parameters(source: Source, call: ast.Call) -> Iterator[Seen]:
    value = argument(source, call, "find_unused_parameters")
    if not is_true(source, value):
        return
    if argument(source, call, "static_graph") is not ABSENT:  # looks in the first step only
        return
    if source.says(PICKS_PARTS) or freezes_later(source, call):
        return
    if only_evaluates(source, call) or _says_why(source, call):
        return
    yield Seen(
        call,
        f"`{source.brief(call.func)}` with `find_unused_parameters=True` walks the whole graph before each backward "
        "pass, and is needed only where a step leaves a parameter without a gradient",
        Proposal(
            "leave `find_unused_parameters` out and train a few steps: where a parameter is unused, backward says so; "
            "where they are always the same ones, pass `static_graph=True` instead"
        ),
        hot=True,
    )


def freezes_later(source: Source, wrapping: ast.Call) -> bool:
    """Whether parameters are frozen or freed behind the wrapping, or in a function that is called there.

    DistributedDataParallel waits for the gradients of all that had `requires_grad` when it was made.
    """
    later = [call for call in source.nodes(ast.Call) if call.lineno > wrapping.lineno]
    if any(_FREEZES.search(last_name(call.func).lower()) for call in later):
        return True
    called = [function for call in later if (function := called_function(source, call)) is not None]
    places = list(_switches(source))
    return any(place.lineno > wrapping.lineno for place in places if not _of_input(source, place)) or any(
        ancestor is function for place in places for ancestor in source.ancestors(place) for function in called
    )


def freezes(source: Source) -> bool:
    """Whether parameters are frozen or freed anywhere in a file."""
    calls = any(_FREEZES.search(last_name(call.func).lower()) for call in source.nodes(ast.Call))
    return calls or any(not _of_input(source, place) for place in _switches(source))


def _switches(source: Source) -> Iterator[ast.expr]:
    """Where `requires_grad` is set, of weights or of data."""
    yield from (n for n in source.nodes(ast.Attribute) if n.attr == "requires_grad" and isinstance(n.ctx, ast.Store))
    yield from source.calls(".requires_grad_")


def _of_input(source: Source, place: ast.expr) -> bool:
    """Whether it is `images.requires_grad_()` or `x.requires_grad = True` in a loop: gradients of data, not of weights."""
    held = place.func if isinstance(place, ast.Call) else place
    name = held.value if isinstance(held, ast.Attribute) else None
    loop = source.enclosing(place, ast.For)
    lists = isinstance(loop, ast.For) and "parameters" in source.text_of(loop.iter)
    return isinstance(name, ast.Name) and not lists and not re.search(r"model|net|param", name.id)


def _says_why(source: Source, call: ast.Call) -> bool:
    """Whether a comment in the call, or on the line above it, says that the option is needed."""
    lines = source.text.split("\n")[max(0, call.lineno - 2) : call.end_lineno]
    return any(_REASON.search(line.partition("#")[2]) for line in lines)
