"""PA702: DistributedDataParallel that looks for unused parameters in every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.distributed import DDP, only_evaluates
from perfaudit.static.understanding.values import ABSENT, argument, is_true

LIGHTNING = tuple(
    f"{package}.strategies.{name}"
    for package in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")
    for name in ("DDPStrategy", "ddp.DDPStrategy")
)
_REASON = re.compile(r"unused|not (actually )?used|n't (actually )?used|need(ed|s)|necessary|required", re.IGNORECASE)
ACCELERATE = ("accelerate.DistributedDataParallelKwargs", "accelerate.utils.DistributedDataParallelKwargs")


@check("PA702", call=(DDP, *LIGHTNING, *ACCELERATE))
def ddp_find_unused_parameters(source: Source, call: ast.Call) -> Iterator[Seen]:
    value = argument(source, call, "find_unused_parameters")
    if not is_true(source, value):
        return
    if argument(source, call, "static_graph") is not ABSENT:  # looks in the first step only
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


def _says_why(source: Source, call: ast.Call) -> bool:
    """Whether a comment in the call, or on the line above it, says that the option is needed."""
    lines = source.text.split("\n")[max(0, call.lineno - 2) : call.end_lineno]
    return any(_REASON.search(line.partition("#")[2]) for line in lines)
