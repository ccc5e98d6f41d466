"""Patches of a script's own loop, which its process has to know when it starts: see `training.multiplexed_file`. Reads texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfaudit.training.code_change import NotSwappable
from perfaudit.training.edited_places import edited_places
from perfaudit.training.multiplexed_file import multiplex_files, touch

Patched = Mapping[str, Sequence[str]]  # by path, the text as it is and as patched


@dataclass(slots=True)
class LoopPatches:
    """Patched texts by path, as `verbs.building` takes them: the text as it is, and a list of patched ones."""

    texts: dict[str, list[Any]] = field(default_factory=dict)
    # The versions of statements that a process with these texts knows.
    _versions: set[tuple[object, ...]] = field(default_factory=set)

    def add(self, patches: Sequence[Patched], both: Callable[[int, int], Patched | None]) -> bool:
        """Whether these patches change statements of loops in ways that were not known before.

        both: two of them, by number, as one patch; asked of those that change the same statements. None where that cannot be.
        """
        together = [both(i, j) for i, j in _touching(patches)]
        for patched in [*patches, *filter(None, together)]:
            for path, (before, after) in patched.items():
                known = self.texts.setdefault(path, [before, []])
                if known[0] != before:
                    known[:] = [before, []]
                if after not in known[1] and after != before:
                    known[1].append(after)
        versions: set[tuple[object, ...]] = {
            (file.path, region.way, region.start, region.stop, key)
            for file in multiplex_files({path: (before, after) for path, (before, after) in self.texts.items()})
            for region in file.regions
            for key in region.versions
        }
        is_new = not versions <= self._versions
        self._versions = versions
        return is_new


def _touching(patches: Sequence[Patched]) -> list[tuple[int, int]]:
    """The pairs of patches that change the same statements."""
    places: list[dict[str, Any]] = []
    for patched in patches:
        found = {}
        for path, (before, after) in patched.items():
            try:
                found[path] = edited_places(before, after, path).places
            except NotSwappable:
                found[path] = ()
        places.append(found)
    return [
        (i, j)
        for j, mine in enumerate(places)
        for i, others in enumerate(places[:j])
        if any(path in others and touch(others[path], mine[path]) for path in mine)
    ]
