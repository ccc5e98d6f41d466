"""An optimizer whose states are spread over the ranks: each updates its part of the parameters, and sends it to the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.tune.ranks.ddp_call import the_call
from perfaudit.tune.ranks.patches import Candidate, Ranks, Refused, patch

SHARDED = "ZeroRedundancyOptimizer"
_OPTIMIZER = regex(r"^torch\.optim\.(Adam|AdamW|SGD|NAdam|RAdam|RMSprop|Adagrad|Adamax|Adadelta)$")
_NAMES = regex(r"^[A-Z][A-Za-z]+$")


def candidates(sources: Sequence[Source], ranks: Ranks) -> Iterator[Candidate]:
    """A patch that shares the state of the optimizer out (ZeRO). Raises Refused where it cannot be written."""
    try:
        the_call(sources)
    except Refused:
        return  # that is said by `ddp_call`
    calls = [
        (source, call)
        for source in sources
        for call in source.calls_named(_NAMES)
        if _OPTIMIZER.search(source.qualified_name(call.func) or "")
    ]
    if len(calls) != 1:
        if calls:
            raise Refused(f"{SHARDED} is not tried: the program makes {len(calls)} optimizers")
        return
    source, call = calls[0]
    if len(call.args) != 1 or isinstance(call.args[0], ast.Starred) or any(each.arg is None for each in call.keywords):
        raise Refused(f"{SHARDED} is not tried: {source.path}:{call.lineno} gives more than the parameters by position")
    edits = edit.together(
        edit.insert_import(source, f"from torch.distributed.optim import {SHARDED}"),
        edit.replace(source, call.func, SHARDED),
        edit.add_keyword(source, call, "optimizer_class", source.text_of(call.func)),
    )
    words = "spread the optimizer's states over the ranks; before a checkpoint, consolidate_state_dict() brings them together"
    yield patch(
        source, call, {"optimizer": SHARDED}, {"optimizer": source.text_of(call.func)}, words, ("checkpoint",), edits
    )
