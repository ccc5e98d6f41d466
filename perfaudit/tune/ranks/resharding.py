"""FSDP2: whether parameters are dropped between the forward and the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.static.understanding.values import ABSENT, argument
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks, patch

RESHARD = "reshard_after_forward"
FULLY_SHARD = ("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard")


def candidates(sources: Sequence[Source], ranks: SeenRanks) -> Iterator[RankPatch]:
    """All calls of `fully_shard` in one file keep what they have gathered: more memory, and one exchange less in a step."""
    places = [(source, call) for source in sources for name in FULLY_SHARD for call in source.calls(name)]
    if not places:
        return
    source, first = places[0]
    if any(other is not source for other, _ in places):
        raise PatchRefused(f"{RESHARD} is left as it is: several files call fully_shard")
    if any(argument(source, call, RESHARD) is not ABSENT for _, call in places):
        raise PatchRefused(f"{RESHARD} is left as it is: {source.path} sets it itself")
    edits = edit.together(*(edit.add_keyword(source, call, RESHARD, "False") for _, call in places))
    words = "keep gathered parameters until the backward pass: more memory, one exchange less"
    yield patch(source, first, {RESHARD: False}, {RESHARD: True}, words, (), edits)
