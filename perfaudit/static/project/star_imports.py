"""What modules bind by `from x import *`, directly or through others."""

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

from perfaudit.records import NamedTuple

if TYPE_CHECKING:
    from perfaudit.static.project import Project
    from perfaudit.static.source import Source


class BehindStars(NamedTuple):
    """Star imports of a module by the names that they may bind, the last one first, and the modules that were looked at, by
    folder and name as in `module_file`.
    """

    stars: dict[str, list[str]]
    modules: dict[tuple[str, str], str]


class Given(NamedTuple):
    """What one module gives to `from module import *`.

    bound: what it binds by itself; listed: its `__all__`, None where it has none, and not `is_clear` where that is more than
    one plain list. stars: the modules that it takes everything from, as written and by path ("" where none of the project is
    meant), and whether it surely does, not in a branch as beside `except ImportError:`; the last one first. modules: as in
    `BehindStars`.
    """

    bound: frozenset[str]
    listed: frozenset[str] | None
    is_clear: bool
    stars: tuple[tuple[str, str, bool], ...]
    modules: dict[tuple[str, str], str]

    def gives(self, name: str) -> bool | None:
        """Whether it gives a name that it binds by itself; None where that is not known."""
        if name not in self.bound:
            return False
        if not self.is_clear:
            return None
        return not name.startswith("_") if self.listed is None else name in self.listed


NOTHING = Given(frozenset(), None, True, (), {})


class StarImports:
    """Star imports of the modules of a project; answers are kept."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._behind: dict[tuple[str, int], BehindStars] = {}
        self._given: dict[str, Given] = {}

    def given_by(self, path: str) -> Given:
        """What a module of the project gives to a star import, by its tree; nothing where it cannot be read."""
        if path not in self._given:
            source = self._project.source(path)
            self._given[path] = self.given_in(source, os.path.dirname(path)) if source is not None else NOTHING
        return self._given[path]

    def given_in(self, source: Source, folder: str) -> Given:
        """The same of a file that is at hand, and lies in a folder."""
        modules: dict[tuple[str, str], str] = {}
        stars: list[tuple[str, str, bool]] = []
        for star in reversed([node for node in source.nodes(ast.ImportFrom) if node.names[0].name == "*"]):
            written = "." * star.level + (star.module or "")
            modules[folder, written] = path = self._project.layout.module_file(folder, written)
            stars.append((written, path, source.parent(star) is source.tree))
        bound = source.bound_in(source.tree)
        listed, is_clear = _names_in_all(source)
        return Given(frozenset(bound) | frozenset(source.aliases), listed, is_clear, tuple(stars), modules)

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


def _names_in_all(source: Source) -> tuple[frozenset[str] | None, bool]:
    """The names in a module's `__all__`, None where it has none; and whether that is all: it is at most one plain list."""
    listed = source.bound_in(source.tree).get("__all__", [])
    if not listed and "__all__" not in source.aliases and not source.reads_of("__all__"):
        return None, True
    statement = source.statement(listed[0]) if len(listed) == 1 and not source.reads_of("__all__") else None
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    if not isinstance(value, (ast.List, ast.Tuple)) or not all(isinstance(item, ast.Constant) for item in value.elts):
        return None, False
    return frozenset(str(item.value) for item in value.elts if isinstance(item, ast.Constant)), True
