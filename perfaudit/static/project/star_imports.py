"""What modules bind by `from x import *`, directly or through others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from perfaudit.records import NamedTuple

if TYPE_CHECKING:
    from perfaudit.static.project import Project


class BehindStars(NamedTuple):
    """Star imports of a module by the names that they may bind, the last one first, and the modules that were looked at, by
    folder and name as in `module_file`.
    """

    stars: dict[str, list[str]]
    modules: dict[tuple[str, str], str]


class StarImports:
    """Star imports of the modules of a project; answers are kept."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._behind: dict[tuple[str, int], BehindStars] = {}

    def behind(self, path: str, hops: int) -> BehindStars:
        """What the modules bind from which this one imports everything, directly or through others.

        A package may import so from hundreds of modules, each of which would be asked for every name.
        """
        if (path, hops) not in self._behind:
            self._behind[path, hops] = self._read_stars(path, hops)
        return self._behind[path, hops]

    def _read_stars(self, path: str, hops: int) -> BehindStars:
        found = self._project.module_names(path)
        stars: dict[str, list[str]] = {}
        modules: dict[tuple[str, str], str] = {}
        for star in reversed(found.stars) if found is not None else ():
            if star.partition(".")[0] == "torch":  # what its star exports cannot be known without importing it
                continue
            key = (os.path.dirname(path), star)
            modules[key] = module = self._project.layout.module_file(*key)
            if not module:  # of a library, or missing: what is none of ours leads to none of torch's names
                continue
            seen = self._project.glance(module)
            names: set[str] = set() if seen is None else {*seen.bound_names}
            if hops > 1 and "*" in names:
                further = self.behind(module, hops - 1)
                names |= further.stars.keys()
                modules |= further.modules
            for name in names:
                stars.setdefault(name, []).append(star)
        return BehindStars(stars, modules)
