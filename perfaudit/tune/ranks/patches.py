"""A patch of one file, as sets of ranks are raced with."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfaudit.findings import Edit, Fix, Location, Safety
from perfaudit.measurements import Settings
from perfaudit.static import edit, unified_diff
from perfaudit.static.document import handed_over
from perfaudit.static.source import Source, Unreadable, read_source


class PatchRefused(Exception):
    """A patch that cannot be made without a doubt; the message says why."""


@dataclass(frozen=True, slots=True)
class SeenRanks:
    """What the first set of ranks has told. cores: of this node, for each of its ranks; backend: of their collectives.

    lengths: of samples, see `target.sample_lengths.told_lengths`, {} where the loader puts none together. loaders_read: file,
    first and last line of the calls whose loaders steps have read. changed_buffers: names of buffers of the wrapped model that
    steps have changed, those of batch norm left out. reads_iterable: a loader that steps read has an IterableDataset.
    tracks_statistics: batch norm of the wrapped model has running statistics, which the first rank sends to the others.
    """

    cores: int = 1
    backend: str = "gloo"
    lengths: Mapping[str, Any] = field(default_factory=dict)
    loaders_read: Sequence[Sequence[Any]] = ()
    changed_buffers: Sequence[str] = ()
    reads_iterable: bool = False
    tracks_statistics: bool = False

    def have_read(self, source: Source, call: ast.Call) -> bool:
        """Whether steps have read the loader that this call makes."""
        here = os.path.realpath(source.path)
        return any(
            os.path.realpath(path) == here and first <= call.lineno and (call.end_lineno or call.lineno) <= last
            for path, first, last in self.loaders_read
        )


@dataclass(frozen=True, slots=True)
class RankPatch:
    """A patch of one file. now: what its settings are without it; text: of the whole file with it."""

    key: str
    settings: Settings
    now: Settings
    words: str
    fix: Fix
    path: str
    text: str
    location: Location


def patch(
    source: Source,
    node: ast.AST,
    settings: Settings,
    now: Settings,
    words: str,
    changes: tuple[str, ...],
    edits: tuple[Edit, ...] | None,
    is_safe: bool = True,
) -> RankPatch:
    """The candidate that these edits make. settings: those that it changes; now: as they and their neighbours are; node: what it
    speaks of; is_safe: not for what changes nothing here, and would do so in another training. Raises PatchRefused where there
    are no edits, or no Python is left.
    """
    key = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    doubt = f"{key} is not tried: {source.path}:{getattr(node, 'lineno', 1)} cannot be edited without a doubt"
    if not edits:
        raise PatchRefused(doubt)
    try:
        after = edit.apply(source.text, edits)
        ast.parse(after)
    except (SyntaxError, ValueError):
        raise PatchRefused(doubt) from None
    diff = unified_diff.diff(source.path, source.text, after)
    safety: Safety = "safe" if is_safe and not changes else "unsafe"
    fix = handed_over(source.path, source.text, Fix(words, safety, changes, edits, diff))
    return RankPatch(key, now | settings, now, words, fix, source.path, after, source.location(node))


def is_unchanged(candidate: RankPatch) -> bool:
    """Whether the file still has the text that the patch was made for."""
    try:
        return edit.apply(read_source(Path(candidate.path), candidate.path).text, candidate.fix.edits) == candidate.text
    except (OSError, Unreadable, ValueError):
        return False
