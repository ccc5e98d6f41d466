"""Gradients that are sent in half precision: a communication hook behind the wrapping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.tune.ranks.ddp_call import name_of, the_call
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks, patch

HOOKS = {"bf16_compress_hook": "bfloat16", "fp16_compress_hook": "float16"}
MODULE = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
ONLY_NCCL = "bf16_compress_hook"  # torch refuses it on other backends


def candidates(sources: Sequence[Source], ranks: SeenRanks) -> Iterator[RankPatch]:
    """A patch for each hook that halves what is sent. Raises PatchRefused where the program has a hook of its own."""
    try:
        source, call = the_call(sources)
    except PatchRefused:
        return  # that is said by `ddp_call`
    if any("register_comm_hook" in each.text for each in sources):
        raise PatchRefused("communication hooks are left as they are: the program has one of its own")
    if not (model := name_of(source, call)):
        raise PatchRefused(
            f"{source.path}:{call.lineno} wraps the model under a condition, or gives it no name: no hook can be set behind it"
        )
    for hook, kind in HOOKS.items():
        if hook == ONLY_NCCL and ranks.backend != "nccl":
            continue
        edits = edit.together(
            edit.insert_import(source, f"from {MODULE} import {hook}"),
            edit.insert_after(source, source.statement(call), f"{model}.register_comm_hook(None, {hook})"),
        )
        words = f"send gradients as {kind}: half as many bytes"
        yield patch(source, call, {"comm_hook": hook}, {"comm_hook": None}, words, ("precision",), edits)
