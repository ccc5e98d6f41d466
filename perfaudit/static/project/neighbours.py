"""The project as one of its files sees it: what its imported names stand for, who imports it, what the files around it say."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from perfaudit.static.import_graph import numbers_in
from perfaudit.static.project.imported_names import MAX_HOPS, ImportedNames
from perfaudit.static.project.marks import FIRST_LOOK

if TYPE_CHECKING:
    from perfaudit.static.call_index import CallShape
    from perfaudit.static.project.settings_files import Found
    from perfaudit.static.project.settings_text import Section
    from perfaudit.static.source import Source
    from perfaudit.static.uses import Question


MAX_CALLING = 12  # files that are parsed for a name that they call


class Neighbours(ImportedNames):
    """What the other files of a project say to one of them. Every answer is noted in `asked`."""

    def imports_a_marked_file(self, mark: str, imports: Iterable[str]) -> bool:
        """Whether one of these modules is a file of the project whose bytes carry the mark.

        Of a package that only hands on what its modules define, these are asked too.
        """
        pending = [(self._folder, module, 0) for module in imports]
        known = set()
        for folder, module, hops in pending:
            path = self._module_file(folder, module)
            if not path or path in known:
                continue
            known.add(path)
            self.asked.files.add(path)
            seen = self._project.glance(path)
            if seen and mark in seen.marks:
                return True
            if seen and hops < MAX_HOPS and os.path.basename(path) == "__init__.py":
                pending += [(os.path.dirname(path), inner, hops + 1) for inner in seen.imports]
        return False

    def is_imported_by_a_marked_file(self, mark: str) -> bool:
        """Whether a file of the scan that imports this one, directly or through others, carries the mark."""
        self.asked.imports = True
        return bool(self._project.graph.importers(self._path) & self._project.files_with_mark(mark))

    def program_carries(self, mark: str) -> bool:
        """Whether a file of the scan that runs together with this one carries the mark: an importer, or what it imports."""
        self.asked.imports = True
        return bool(self._project.graph.program(self._path) & self._project.files_with_mark(mark))

    def project_carries(self, mark: str) -> bool:
        """Whether a file of this project carries the mark, this one too: below the same top, whoever imports it."""
        self.asked.marks.add(mark)
        project = self._project
        return bool(project.below_top_of(self._folder) & project.files_with_mark(mark))

    def project_imports(self, packages: Collection[str]) -> bool:
        """Whether a file of this project imports one of these packages, or a part of one."""
        self.asked.imports = True
        files = (self._project.files[n] for n in numbers_in(self._project.below_top_of(self._folder)))
        seen = (glance for file in files if (glance := self._project.glance(file)) is not None)
        return any(module.partition(".")[0] in packages for each in seen for module in each.imports)

    def holds_module(self, dotted: str) -> bool:
        """Whether a file of this project is the module of this name, as its scripts import it."""
        path = self._project.layout.module_file(self._folder, dotted)
        self.asked.modules[self._folder, dotted] = path
        return bool(path)

    def imports_carry(self, mark: str) -> bool:
        """Whether a file of the scan that this one imports, directly or not, says something (`Project.says_to_program`)."""
        self.asked.imports = True
        imported = self._project.graph.imported_by(self._path)
        if mark in FIRST_LOOK:  # any file may ask for it; others are asked for by scripts
            return bool(imported & self._project.files_with_mark(mark))
        files = [self._project.files[n] for n in numbers_in(imported)]
        self.asked.files.update(files)
        return any(self._project.says_to_program(file, mark) for file in files)

    def modules_carry(self, modules: Iterable[str], mark: str) -> bool:
        """Whether one of these modules of the project, or a file that it imports, directly or not, says something."""
        self.asked.imports = True
        graph = self._project.graph
        own = {path for module in modules if (path := self._module_file(self._folder, module))}
        files = own | {self._project.files[n] for path in own for n in numbers_in(graph.imported_by(path))}
        self.asked.files.update(files)
        return any(self._project.says_to_program(file, mark) for file in sorted(files))

    def picked_carry(self, mark: str) -> bool:
        """Whether one of the modules says something of which this file imports one by a name that it makes up."""
        self.asked.imports = True
        seen = self._project.glance(self._path)
        packages = seen.picked if seen else ()
        files = [file for package in packages for file in self._project.layout.modules_of(self._folder, package)]
        self.asked.files.update(files)
        return any(self._project.says_to_program(file, mark) for file in files)

    def is_imported(self, but_by: re.Pattern[str] | None = None) -> bool:
        """Whether another file of the scan imports this one, directly or not; but_by: names of files that do not count."""
        self.asked.imports = True
        importers = self._project.graph.importers(self._path)
        names = (os.path.basename(self._project.files[number]) for number in numbers_in(importers))
        return any(but_by is None or not but_by.search(name) for name in names)

    def calls_by_importers(self, name: str) -> list[CallShape]:
        """What the files of the scan that import this one, directly or through others, call by this last name."""
        self.asked.imports = self.asked.importers = True
        return self._project.calls(self._project.graph.importers(self._path), name)

    def is_called_by_importers(self, name: str) -> bool:
        """Whether a file of the scan that imports this one, directly or through others, calls this last name."""
        self.asked.imports = self.asked.importers = True
        project = self._project
        numbers = project.numbers_calling(project.graph.importers(self._path), name)
        return any(project.calls_in(number, name) for number in numbers)

    def importers_calling(self, name: str) -> Iterator[Source]:
        """The files of the scan that import this one, directly or through others, and may call this last name; seen alone.

        Each is read when it is asked for: of a library hundreds may be.
        """
        self.asked.imports = self.asked.importers = True
        files = self._project.files_calling(self._project.graph.importers(self._path), name)
        return self._read(files)

    def program_calling(self, name: str, fits: Callable[[CallShape], bool]) -> list[Source]:
        """The files that may run together with this one and call this last name in a way that fits, seen alone.

        None where many do: then the name says little, and to parse them all takes long.
        """
        self.asked.imports = self.asked.program = True
        project = self._project
        numbers = project.numbers_calling(project.program_of(self._path), name)
        fitting = (project.files[n] for n in numbers if any(fits(shape) for shape in project.calls_in(n, name)))
        files = list(islice(fitting, MAX_CALLING + 1))
        return list(self._read(files)) if len(files) <= MAX_CALLING else []

    def program_sources(self, mark: str) -> list[Source]:
        """The files of the same program that carry a mark, each seen alone; not this file."""
        self.asked.marks.add(mark)
        self.asked.imports = True
        marked = self._project.graph.program(self._path) & self._project.files_with_mark(mark)
        return list(self._read([self._project.files[number] for number in numbers_in(marked)]))

    def _read(self, files: list[str]) -> Iterator[Source]:
        """These files as trees; `definition_of` may be asked by them."""
        for file in files:
            source = self._project.source(file)
            if source is not None:
                self._folders[id(source)] = (source, os.path.dirname(file))
                yield source

    def some_file(
        self,
        mark: str,
        fact: Callable[[Source], bool],
        needed: Callable[[Source], bool] | None = None,
        apart: Callable[[Source], bool] | None = None,
    ) -> str:
        """The path of another file of this project that carries the mark and of which the fact holds; "" if none.

        Of the same program, or below the same top; a scan may hold projects that know nothing of each other. needed: see
        `FileFacts.all_where`. apart: a fact of scripts; one that nobody imports, and that does not import this file, does not
        count.
        """
        self.asked.marks.add(mark)
        self.asked.imports = True
        project = self._project
        marked = project.files_with_mark(mark)
        if not marked:
            return ""
        together = project.graph.importers(self._path) | project.graph.program(self._path)
        together |= project.below_top_of(self._folder)
        files = marked & together & ~project.only(self._path)
        found = project.facts.all_where(fact, files, needed)
        return next((path for path in found if apart is None or not self._is_apart(path, apart)), "")

    def _is_apart(self, path: str, apart: Callable[[Source], bool]) -> bool:
        graph, only = self._project.graph, self._project.only
        if graph.importers(path) & ~only(path) or graph.imported_by(path) & only(self._path):
            return False
        return bool(self._project.facts.first_where(apart, only(path)))

    def some_relative(
        self, mark: str, fact: Callable[[Source], bool], needed: Callable[[Source], bool] | None = None
    ) -> str:
        """The path of a file that imports this one or that this one imports, directly or not, marked, and of which the fact
        holds; "" if none. Of a file that nobody imports and that imports nobody's, another one of this project.
        """
        self.asked.marks.add(mark)
        self.asked.imports = True
        graph = self._project.graph
        related = graph.importers(self._path) | graph.imported_by(self._path)
        if not graph.importers(self._path) & ~self._project.only(self._path):
            related |= self._project.below_top_of(self._folder)  # it may be imported by its name in a text
        marked = self._project.files_with_mark(mark)
        others = marked & related & ~self._project.only(self._path)
        return self._project.facts.first_where(fact, others, needed) if marked else ""

    def answer(self, question: Question, name: str = "") -> bool:
        """What the texts of the scan say of this file, or of a name that it defines; see `Uses`."""
        self.asked.uses.add((question, name))
        return self._project.uses.answer(self._path, question, name)

    def settings(self, name: str) -> list[Found] | None:
        """What the settings files of this project set under a name; None where it has too many of them."""
        self.asked.settings.add(name)
        return self._project.settings.settings(self._path, name)

    def sections_for(self, class_name: str) -> list[tuple[Section, str]] | None:
        """The sections of settings files with the arguments of a class, by its last name, and their files; None as above."""
        self.asked.settings.add(class_name)
        return self._project.settings.sections(self._path, class_name)

    def classes_of_settings(self) -> list[tuple[str, str]]:
        """The classes that sections of settings files give their arguments, as they are named there, and their files."""
        from perfaudit.static.project.settings_text import CLASS_KEYS  # most files ask for none of their settings

        self.asked.settings |= set(CLASS_KEYS)
        return self._project.settings.classes(self._path)

    def choices_of_settings(self) -> list[tuple[str, object, str]]:
        """What hydra's lists of defaults choose: a group as it is named there, what stands behind it, and the file."""
        self.asked.settings.add("defaults")
        return self._project.settings.choices(self._path)

    def texts_of_settings(self) -> list[tuple[str, str]]:
        """The settings files of this project and their texts."""
        self.asked.settings |= {":", "="}  # one of which each of them has that sets anything
        return self._project.settings.texts(self._path)

    def lacks_beside(self, found: Sequence[Found]) -> bool:
        """Whether a settings file beside those of some settings looks like them and lacks the setting."""
        self.asked.settings.add("")  # what it holds may change without a word of the setting
        return self._project.settings.is_lacking_beside(self._path, found)

    def settings_move(self) -> bool:
        """Whether settings files may put sections elsewhere than where they stand: hydra's `@package`."""
        self.asked.settings.add("@")
        return self._project.settings.moves_sections(self._path)

    def some_importer(
        self,
        fact: Callable[[Source], bool],
        of_text: Callable[[str], bool] | None = None,
        calling: Iterable[str] | None = None,
    ) -> str:
        """The path of a file of the scan that imports this one, directly or not, and of which the fact holds; "" if none.

        of_text: see `FileFacts.first_in_order`; calling: names of which a file calls one wherever the fact holds. A module that
        all of a library imports has thousands of importers, and to parse them takes longer than the rest of a scan.
        """
        self.asked.imports = self.asked.importers = True
        graph = self._project.graph
        nearest: Iterable[int] = graph.nearest_importers(self._path)
        if calling is not None:
            importers = graph.importers(self._path)
            callers = {number for name in calling for number in self._project.numbers_calling(importers, name)}
            nearest = [number for number in nearest if number in callers] if callers else ()
            names = tuple(calling)
            of_text = of_text or (lambda text: any(name in text for name in names))  # the index is generous at first
        return self._project.facts.first_in_order(fact, nearest, of_text)
