"""Batches of samples of similar length on all ranks at the same time, so that no rank waits for the longest batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfaudit.knobs._batches_by_length import LOADER, NotWritten, random_loader, sampler_edits
from perfaudit.knobs.sampler import AS_DRAWN, by_length
from perfaudit.measurements import Settings
from perfaudit.static.source import Source
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks, patch

WORDS = "give all ranks samples of similar length at the same time"


def candidates(sources: Sequence[Source], ranks: SeenRanks) -> Iterator[RankPatch]:
    """The loader that steps read, with a sampler by length in the place of its DistributedSampler; none without lengths."""
    calls = [(source, call) for source in sources for call in source.calls(LOADER) if ranks.have_read(source, call)]
    seen = ranks.lengths
    if len(calls) != 1 or not seen:
        return
    source, call = calls[0]
    if seen["why"]:
        raise PatchRefused(f"batches by length are not tried for {source.path}:{call.lineno}: {seen['why']}")
    try:
        loader = random_loader(source, call)
        if loader.drawing is None:
            raise NotWritten(f"{source.path}:{call.lineno} shares its samples out by no DistributedSampler")
        edits = sampler_edits(loader, seen["accessor"], seen["dimension"])
    except NotWritten as why:
        raise PatchRefused(f"batches by length are not tried: {why}") from None
    settings: Settings = {"batches": by_length(seen["accessor"], seen["dimension"])}
    yield patch(source, call, settings, {"batches": AS_DRAWN}, WORDS, ("order",), edits)
