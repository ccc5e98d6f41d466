"""Where modules lie: which file is meant where one imports a name, and to which project a folder belongs. Lists folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from perfaudit.static.project.first_look import Glance

TOPS = (".git", "pyproject.toml", "setup.py", "setup.cfg")  # what lies in the top folder of a project
MAX_LEVELS = 6  # folders above a file in which its absolute imports are looked for


class Layout:
    """Where the modules of a scan lie, and its projects; answers are kept.

    glance: a first look at a file of the scan, for what it adds to `sys.path`.
    """

    def __init__(self, files: Sequence[str], glance: Callable[[str], Glance | None]) -> None:
        self._files = files
        self._glance = glance
        self._listings: dict[str, frozenset[str]] = {}
        self._roots: dict[str, tuple[str, ...]] = {}
        self._tops: dict[str, str] = {}
        self._modules: dict[tuple[str, str], str] = {}
        self._heads: dict[tuple[str, str], list[str]] = {}

    def module_file(self, folder: str, dotted: str) -> str:
        """The file of a module as imported by a file in this folder (".data", "pkg.net"); "" if it is none of ours."""
        key = (folder, dotted)
        if key not in self._modules:
            self._modules[key] = self._find_module(folder, dotted)
        return self._modules[key]

    def _find_module(self, folder: str, dotted: str) -> str:
        name = dotted.lstrip(".")
        if level := len(dotted) - len(name):
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return self._below(folder, name)
        return next((found for root in self._roots_with(folder, name) if (found := self._below(root, name))), "")

    def modules_of(self, folder: str, dotted: str) -> Iterator[str]:
        """The files of the modules that lie directly in a package as a file in this folder names it: "models"."""
        for root in self._roots_with(folder, dotted):
            inside = os.path.join(root, *dotted.split("."))
            if found := sorted(name for name in self.listing(inside) if name.endswith(".py")):
                yield from (os.path.join(inside, name) for name in found)
                return

    def _roots_with(self, folder: str, name: str) -> list[str]:
        """The roots that hold the first part of a module's name: none for what is installed."""
        key = (folder, name.partition(".")[0])
        if key not in self._heads:
            names = {key[1], f"{key[1]}.py"}
            self._heads[key] = [root for root in self._roots_of(folder) if names & self.listing(root)]
        return self._heads[key]

    def _below(self, folder: str, name: str) -> str:
        parts = name.split(".") if name else []
        for part in parts[:-1]:
            if part not in self.listing(folder):
                return ""
            folder = os.path.join(folder, part)
        if not parts:
            return os.path.join(folder, "__init__.py") if "__init__.py" in self.listing(folder) else ""
        listing = self.listing(folder)
        if parts[-1] in listing and "__init__.py" in self.listing(inside := os.path.join(folder, parts[-1])):
            return os.path.join(inside, "__init__.py")
        return os.path.join(folder, f"{parts[-1]}.py") if f"{parts[-1]}.py" in listing else ""

    def listing(self, folder: str) -> frozenset[str]:
        if folder not in self._listings:
            try:
                self._listings[folder] = frozenset(os.listdir(folder))  # names only, twice as fast
            except OSError:
                self._listings[folder] = frozenset()
        return self._listings[folder]

    def _roots_of(self, folder: str) -> tuple[str, ...]:
        """Folders in which absolute imports of a file are looked for: its own and those above, up to the project's top.

        And what its scripts add to `sys.path`, where that lies inside the project: nothing outside is read for what they say.
        """
        if folder not in self._roots:
            roots = [folder]
            while len(roots) < MAX_LEVELS and not self.listing(roots[-1]).intersection(TOPS):
                above = os.path.dirname(roots[-1])
                if above == roots[-1]:
                    break
                roots.append(above)
            top = os.path.join(roots[-1], "")
            if "src" in self.listing(roots[-1]):
                roots.append(os.path.join(roots[-1], "src"))
            added = (os.path.normpath(os.path.join(folder, name)) for name in self._search_paths.get(folder, ()))
            self._roots[folder] = tuple(dict.fromkeys([*roots, *(path for path in added if path.startswith(top))]))
        return self._roots[folder]

    @cached_property
    def _search_paths(self) -> dict[str, list[str]]:
        """What scripts add to `sys.path`, by the folder in which they lie and from which they are most often started."""
        found: dict[str, list[str]] = {}
        for file in self._files:
            if (seen := self._glance(file)) is not None and seen.search_path:
                found.setdefault(os.path.dirname(file), []).extend(seen.search_path)
        return found

    def top(self, folder: str) -> str:
        """The folder of the project to which a folder belongs.

        The nearest one above with `.git`, `pyproject.toml` or the like; without it the part of the scan it lies in: all
        of it where files lie directly in the folder that holds the whole scan, else the folder below that one.
        """
        if folder not in self._tops:
            above = os.path.dirname(folder)
            if self.listing(folder).intersection(TOPS):
                self._tops[folder] = folder
            elif folder == self._base or above in (folder, self._base):
                self._tops[folder] = self._base if self._is_one_project else folder
            else:
                self._tops[folder] = self.top(above)
        return self._tops[folder]

    def holds_all(self, folder: str) -> bool:
        """Whether a folder is the deepest one that holds the whole scan."""
        return folder == self._base

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(os.path.dirname(file) for file in self._files)

    @cached_property
    def _base(self) -> str:
        """The deepest folder that holds the whole scan, "" if none does."""
        try:
            return os.path.commonpath(self._folders)
        except ValueError:  # no files, or several drives
            return ""

    @cached_property
    def _is_one_project(self) -> bool:
        """Whether the whole scan lies below one top, or files lie where its parts do: a folder of projects has none."""
        folder = self._base
        while folder and not self.listing(folder).intersection(TOPS):
            above = os.path.dirname(folder)
            folder = above if above != folder else ""
        return bool(folder) or self._base in self._folders
