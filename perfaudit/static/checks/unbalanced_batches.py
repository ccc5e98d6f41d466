"""PA707: padded batches of random samples, for which the processes wait for each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.static.understanding.values import ABSENT, argument, is_true, resolve

PAD = "torch.nn.utils.rnn.pad_sequence"
_BY_LENGTH = regex(
    r"bucket|sort|by_len|length_group|group_by|lengthgroup|max_tokens|token_batch|pack_|packing|truncat|max_len|maxlen"
    r"|block_size|\[:\s*[a-z_.]*(len|size|window)",
    re.IGNORECASE,
)
_NO_TRAINING = regex(r"val|test|eval|dev", re.IGNORECASE)


@check("PA707", call="torch.utils.data.DataLoader")
def unbalanced_batches(source: Source, call: ast.Call) -> Iterator[Seen]:
    if not source.mentions("pad_sequence") or not ddp_calls(source) or not source.calls(".backward"):
        return
    collate = argument(source, call, "collate_fn", 6)
    if not isinstance(collate, ast.expr) or not _pads(source, collate):
        return
    if argument(source, call, "batch_sampler", 4) is not ABSENT or not _draws_at_random(source, call):
        return
    if _BY_LENGTH.search(source.text) or _NO_TRAINING.search(source.text_of(source.statement(call))):
        return
    yield Seen(
        call,
        f"`{source.brief(collate, 30)}` pads a random batch to its longest sample: a process with short ones waits "
        "in every step for the one with the longest",
        Proposal("draw batches of like length (a sampler that sorts within windows), the same on all processes"),
    )


def _pads(source: Source, collate: ast.expr) -> bool:
    """Whether the function of this file that puts a batch together pads it to its longest sample."""
    function = resolve(source, collate)
    if isinstance(collate, ast.Name):
        bindings = source.lookup(collate)
        function = bindings[0] if len(bindings) == 1 and isinstance(bindings[0], FUNCTIONS) else function  # type: ignore[assignment]
    if not isinstance(function, (ast.Lambda, *FUNCTIONS)):
        return False
    return any(any(ancestor is function for ancestor in source.ancestors(pad)) for pad in source.calls(PAD))


def _draws_at_random(source: Source, call: ast.Call) -> bool:
    """Whether samples come in random order: shuffled, or from a DistributedSampler, which shuffles by default."""
    if is_true(source, argument(source, call, "shuffle", 2)):
        return True
    sampler = argument(source, call, "sampler", 3)
    made = resolve(source, sampler) if isinstance(sampler, ast.expr) else None
    if not isinstance(made, ast.Call) or source.qualified_name(made.func) != "torch.utils.data.DistributedSampler":
        return False
    return argument(source, made, "shuffle", 3) is ABSENT or is_true(source, argument(source, made, "shuffle", 3))
