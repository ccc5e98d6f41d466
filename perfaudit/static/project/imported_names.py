"""What the imported names of one file stand for: something of torch's, or what another file of the project defines."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.static.project.asked import Asked
from perfaudit.static.project.first_look import PLAIN_LAST_NAMES
from perfaudit.static.source.plain_subclass import PLAIN_BASES
from perfaudit.static.source.torch_names import canonical

if TYPE_CHECKING:
    from perfaudit.static.project import Project
    from perfaudit.static.project.star_imports import Given
    from perfaudit.static.source import Source

MAX_HOPS = 4  # re-exports followed from file to file
# Only such names are worth opening another file for: classes, and the names under which torch's modules are known.
_MAY_BE_TORCH = regex(r"(?:^|\.)(?:[A-Z]\w*|torch|nn|F|optim|functional|data|cuda|amp|init)$")


class ImportedNames:
    """The names that one file of a project imports. Every answer is noted in `asked`."""

    def __init__(self, project: Project, path: str) -> None:
        self._project = project
        self._path = path
        self._folder = os.path.dirname(path)
        self._names: dict[str, str] = {}
        self._derived: dict[tuple[str, frozenset[str]], bool] = {}
        self._noted: set[tuple[str, int]] = set()
        self._folders: dict[int, tuple[Source, str]] = {}  # of the files that definitions were found in
        self._given: dict[int, tuple[Source, Given]] = {}  # by id of a file
        self._starred: dict[tuple[int, str], str | None] = {}  # by id of a file, and name: see `_name_behind_star`
        self.asked = Asked()

    def torch_name(self, dotted: str) -> str:
        """The documented name of torch's that an imported name stands for (".layers.Conv" is "torch.nn.Conv2d"), or "".

        Through re-exports, star imports, and subclasses that take the same arguments.
        """
        if dotted not in self._names:
            known = _MAY_BE_TORCH.search(dotted) is not None or self._takes_from_torch(dotted)
            self._names[dotted] = self._follow(self._folder, dotted, MAX_HOPS) if known else ""
        return self._names[dotted]

    def _takes_from_torch(self, dotted: str) -> bool:
        """Whether a module of the project imports this name from torch, as its bytes show: a function, `checkpoint as ck`."""
        module, name = _split(dotted)
        path = self._module_file(self._folder, module) if module else ""
        if not path:
            return False
        self.asked.files.add(path)
        seen = self._project.glance(path)
        return seen is not None and seen.takes_from_torch(name)

    def derives_from(self, dotted: str, bases: frozenset[str]) -> bool:
        """Whether an imported name is a class of the project derived from one of these of torch's, in any way.

        Each class on the way has one base.
        """
        if (dotted, bases) not in self._derived:
            self._derived[dotted, bases] = self._follow(self._folder, dotted, MAX_HOPS, bases) in bases
        return self._derived[dotted, bases]

    def definition_of(self, dotted: str, by: Source | None = None) -> tuple[Source, ast.AST] | None:
        """The function or class of another file that an imported name stands for, and that file; None where none surely is.

        Through re-exports, also by `from .images import *`. The file is seen alone: what its own imports stand for is asked
        with `by`, the file that imports the name, where that is one in which something was found before.
        """
        source, bound = self.bindings_of(dotted, by) or (None, [])
        return (source, bound[0]) if source is not None and len(bound) == 1 else None

    def bindings_of(self, dotted: str, by: Source | None = None) -> tuple[Source, list[ast.AST]] | None:
        """All that binds an imported name in the file where it is bound, and that file: see `definition_of`."""
        folder = self._folder if by is None else self._folders[id(by)][1]
        for _ in range(MAX_HOPS):
            module, name = _split(dotted)
            path = self._module_file(folder, module) if module and name else ""
            if not path or path == self._path:
                return None
            self.asked.files.add(path)
            source = self._project.source(path)
            if source is None:
                return None
            bound = source.bound_in(source.tree).get(name, [])
            imported = source.aliases.get(name)
            if not bound and not imported:
                imported = self._name_behind_star(
                    name, self._project.stars.given_by(path), os.path.dirname(path), set()
                )
            if bound or not imported:
                self._folders[id(source)] = (source, os.path.dirname(path))
                return (source, bound) if bound else None
            folder, dotted = os.path.dirname(path), imported
        return None

    def may_have_updates(self, dotted: str) -> bool:
        """Whether the file that an imported name comes from may update weights, or takes it from another one: see `Project`."""
        module, name = _split(dotted)
        path = self._module_file(self._folder, module) if module and name else ""
        if not path:
            return False
        self.asked.files.add(path)
        return self._project.may_have_updates(path, name)

    def is_own_module(self, dotted: str, by: Source | None = None) -> bool:
        """Whether an imported name is a module of the project, or lies in one; by: see `definition_of`."""
        folder = self._folder if by is None else self._folders[id(by)][1]
        return bool(self._module_file(folder, dotted) or self._module_file(folder, dotted.rpartition(".")[0]))

    def is_taken_by_star(self, name: str, by: Source) -> bool:
        """Whether a file in which something was found takes what this file binds to a name by `from this_file import *`.

        Not where it imports everything from another module behind it that gives the name as well, or may.
        """
        if name in by.assigned_names or name in by.aliases:
            return False
        given = self._given_in(by, self._folders[id(by)][1])
        self.asked.modules |= given.modules
        for _, path, _ in given.stars:
            self.asked.files.update({path} - {""})
            is_given = self._project.stars.given_by(path).gives(name) if path else False
            if path == self._path or is_given is not False:
                return path == self._path and is_given is True
        return False

    def bound_by_star(self, name: str, by: Source) -> tuple[Source, list[ast.AST]] | None:
        """What binds a name that only `from module import *` can have bound in a file: the last such module that gives it.

        by: the file that is scanned, or one in which something was found. None where a package that is installed may bind it,
        and where a module may give it or not.
        """
        if name in by.assigned_names or name in by.aliases:
            return None
        asker = by if id(by) in self._folders else None
        key = (id(by), name)
        if key not in self._starred:
            folder = self._folder if asker is None else self._folders[id(asker)][1]
            self._starred[key] = self._name_behind_star(name, self._given_in(by, folder), folder, set())
        joined = self._starred[key]
        return self.bindings_of(joined, asker) if joined else None

    def _name_behind_star(self, name: str, given: Given, folder: str, seen: set[str]) -> str | None:
        """`module.name` of the last `from module import *` of a file that gives a name; "" where none does, None where one may.

        The module may take it from another one, in the same way. seen: the files that were asked for it.
        """
        self.asked.modules |= given.modules
        for written, path, runs in given.stars:
            joined = written + name if not written.strip(".") else f"{written}.{name}"
            if not path:
                if self._module_file(folder, joined):
                    continue
                return None  # of a package that is installed
            self.asked.files.add(path)
            further = self._project.stars.given_by(path)
            is_given = further.gives(name)
            if is_given is False and further.stars and path not in seen and not name.startswith("_"):
                seen.add(path)
                behind = self._name_behind_star(name, further, os.path.dirname(path), seen)
                if behind is None or (behind and (further.listed is not None or not further.is_clear)):
                    return None  # its list says whether
                is_given = bool(behind)
            if is_given is not False:
                return joined if is_given and runs else None
        return ""

    def _given_in(self, source: Source, folder: str) -> Given:
        """What a file gives that is at hand."""
        if id(source) not in self._given:
            self._given[id(source)] = source, self._project.stars.given_in(source, folder)
        return self._given[id(source)][1]

    def _follow(self, folder: str, dotted: str, hops: int, bases: frozenset[str] | None = None) -> str:
        """What a name stands for; bases: classes of torch's of which any subclass counts, None for plain ones."""
        if dotted.partition(".")[0] == "torch":
            return canonical(dotted)
        module, name = _split(dotted)
        if not module or not hops:
            return ""
        path = self._module_file(folder, module)
        if not path:
            owner = self._owner(folder, module, hops - 1, bases)  # `layers.nn.Conv2d`
            return canonical(f"{owner}.{name}") if owner else ""
        return self._meant_in(path, name, hops, bases)

    def _meant_in(self, path: str, name: str, hops: int, bases: frozenset[str] | None) -> str:
        """What a name stands for that a file of the project may bind: see `_follow`.

        Hundreds of files of a library import the same base class: the project keeps the answer, and what was asked for it.
        """
        key = (path, name, hops, bases)
        if key not in self._project.meanings:
            with self._asking_anew() as asked:
                self._project.meanings[key] = self._read_in(path, name, hops, bases), asked
        return self._noted_answer(*self._project.meanings[key])

    def _read_in(self, path: str, name: str, hops: int, bases: frozenset[str] | None) -> str:
        self.asked.files.add(path)
        seen = self._project.glance(path)
        if seen is None or not seen.may_bind(name, _last_names(bases)):
            return ""
        found = self._project.module_names(path)
        if found is None:
            return ""
        inside = os.path.dirname(path)
        if written := found.base_of(name, plain=bases is None):
            head, _, tail = written.partition(".")
            base = found.imports.get(head)
            if base is None:
                return self._meant_in(path, head, hops - 1, bases) if not tail and head != name and hops > 1 else ""
            meant = self._follow(inside, f"{base}.{tail}" if tail else base, hops - 1, bases)
            return meant if meant in (bases or PLAIN_BASES) else ""
        if name in found.imports:
            return self._follow(inside, found.imports[name], hops - 1, bases)
        for star in self._stars_that_bind(path, name, hops) if found.stars else ():
            joined = star if star.endswith(".") else star + "."
            if meant := self._follow(inside, joined + name, hops - 1, bases):
                return meant
        return ""

    def _owner(self, folder: str, module: str, hops: int, bases: frozenset[str] | None) -> str:
        """What a module's name stands for where no file has it: something of torch's that another module imports, or nothing.

        A scan of a part of a package asks it for each missing module from every file, and each time goes through all star
        imports: the project keeps the answer.
        """
        while module.startswith(".."):
            folder, module = os.path.dirname(folder), module[1:]
        key = (folder, module, hops, bases)
        if key not in self._project.owners:
            with self._asking_anew() as asked:
                self._project.owners[key] = self._follow(folder, module, hops, bases), asked
        return self._noted_answer(*self._project.owners[key])

    @contextmanager
    def _asking_anew(self) -> Iterator[Asked]:
        """What is asked within is noted in this alone."""
        asked, noted = self.asked, self._noted
        self.asked, self._noted = Asked(), set()
        try:
            yield self.asked
        finally:
            self.asked, self._noted = asked, noted

    def _noted_answer(self, answer: str, asked: Asked) -> str:
        """An answer that the project keeps; what was asked for it is noted."""
        self.asked.files |= asked.files
        self.asked.modules |= asked.modules
        return answer

    def _stars_that_bind(self, path: str, name: str, hops: int) -> Sequence[str]:
        """The star imports of a module that may bind a name, directly or through others; the last one first."""
        behind = self._project.stars.behind(path, hops)
        if (path, hops) not in self._noted:
            self._noted.add((path, hops))
            self.asked.files.update(filter(None, behind.modules.values()))
            self.asked.modules.update(behind.modules)
        return behind.stars.get(name, ())

    def _module_file(self, folder: str, dotted: str) -> str:
        path = self._project.layout.module_file(folder, dotted)
        self.asked.modules[folder, dotted] = path  # where there is none too: there may be one tomorrow
        return path


def _last_names(bases: frozenset[str] | None) -> Collection[str]:
    return PLAIN_LAST_NAMES if bases is None else {name.rpartition(".")[2] for name in bases}


def _split(dotted: str) -> tuple[str, str]:
    """The module of a dotted name, and its last part: (".layers", "Conv"), and (".", "Conv") of ".Conv"."""
    module, _, name = dotted.rpartition(".")
    if dotted.startswith(".") and not module.strip("."):
        module = dotted[: len(dotted) - len(dotted.lstrip("."))]
    return module, name
