"""What to try on the ranks of a program: which of its calls can be patched, and why others are left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfaudit.measurements import Settings
from perfaudit.records import NamedTuple
from perfaudit.static.discover import shown_path
from perfaudit.static.source import Source, Unreadable, read_source
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.tune.ranks import (
    batches_by_length,
    compression,
    ddp_call,
    no_sync,
    prefetching,
    rank_workers,
    resharding,
    sharded_optimizer,
)
from perfaudit.tune.ranks.ddp_call import MovedGradients
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks

SYNC_BATCH_NORM = (
    "torch.nn.SyncBatchNorm",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
)
# Found by what they patch, in the order in which they are told.
Find = Callable[[Sequence[Source], SeenRanks], Iterable[RankPatch]]
FINDS: tuple[Find, ...] = (
    ddp_call.candidates,
    no_sync.candidates,
    rank_workers.candidates,
    resharding.candidates,
    prefetching.candidates,
    compression.candidates,
    sharded_optimizer.candidates,
    batches_by_length.candidates,
)
BY_LENGTH: tuple[Find, ...] = (batches_by_length.candidates,)


class NoCandidates(Exception):
    """There is nothing to try; the message says why. moved: as of a `Choice`, for what others find."""

    def __init__(self, why: str, moved: MovedGradients | None = None) -> None:
        super().__init__(why)
        self.moved = moved


class Choice(NamedTuple):
    """now: the settings that candidates change, as they are; left: what is not tried, and why; moved: see `ddp_call`."""

    now: Settings
    candidates: list[RankPatch]
    left: list[str]
    moved: MovedGradients | None


@dataclass(slots=True)
class _Found:
    allowed: list[RankPatch] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def candidates_of(
    files: Sequence[str], allow: frozenset[str], ranks: SeenRanks | None = None, finds: Sequence[Find] = FINDS
) -> Choice:
    """What to try on these files of a program, as far as `allow` has what besides speed it changes. Raises NoCandidates."""
    sources = _sources(files)
    found = _Found()
    for find in finds:
        _take(found, find(sources, ranks or SeenRanks()), allow)
    if any(source.calls(name) for source in sources for name in SYNC_BATCH_NORM):
        found.left.append(
            "SyncBatchNorm is left as it is: ranks exchange statistics in each forward pass, and without it the model is "
            "another one"
        )
    if not found.allowed:
        nothing = (
            "no sample has a length to which its batches are padded, or several loaders are read"
            if finds is BY_LENGTH
            else "no file that the script runs calls DistributedDataParallel by its name"
        )
        raise NoCandidates("; ".join(found.left) or nothing, ddp_call.moved_gradients(sources))
    now: Settings = {}
    for candidate in found.allowed:
        now |= candidate.now
    return Choice(now, found.allowed, found.left, ddp_call.moved_gradients(sources))


def _take(found: _Found, candidates: Iterable[RankPatch], allow: frozenset[str]) -> None:
    """Add what is allowed, and say why the others are left."""
    try:
        for candidate in candidates:
            lacking = sorted(set(candidate.fix.changes) - allow)
            if not lacking:
                found.allowed.append(candidate)
            else:
                found.left.append(
                    f"{candidate.key} is not tried: it changes {lacking[0]}; --allow {lacking[0]} tries it"
                )
    except PatchRefused as why:
        found.left.append(str(why))


def _sources(files: Sequence[str]) -> list[Source]:
    """The files of the project, those with DistributedDataParallel first."""
    found = []
    for file in files:
        if os.path.relpath(os.path.realpath(file), os.path.realpath(Path.cwd())).startswith(".."):
            continue  # patches stay inside the project
        try:
            found.append(read_source(Path(file), shown_path(Path(file))))
        except (OSError, Unreadable):
            continue
    return sorted(found, key=lambda source: not ddp_calls(source))
