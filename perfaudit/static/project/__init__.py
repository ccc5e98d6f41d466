"""What the other files of a project say, and where they lie. Reads them, imports nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.reading import digest, read_bytes
from perfaudit.static import discover
from perfaudit.static.import_graph import FileSet, ImportGraph, numbers_in
from perfaudit.static.project.asked import Asked
from perfaudit.static.project.file_facts import FileFacts
from perfaudit.static.project.first_look import Glance, glance
from perfaudit.static.project.layout import Layout
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.project.star_imports import StarImports
from perfaudit.static.project.update_words import may_update_weights
from perfaudit.static.source import Source, read_source
from perfaudit.static.source.reading import Unreadable, read_text

if TYPE_CHECKING:
    from perfaudit.static.call_index import CallIndex, CallShape
    from perfaudit.static.module_names import ModuleNames
    from perfaudit.static.project.program_marks import Look
    from perfaudit.static.project.settings_files import SettingsFiles
    from perfaudit.static.uses import Uses

MAX_SOURCES = 8  # neighbours whose trees are kept; one of 100 kB takes 20 MB
MAX_NEIGHBOUR_BYTES = 1 << 20  # a larger file is no module of helpers
_DEFINED_AT_TOP = regex(rb"^(?:class|def|async def) ([^\W\d]\w*)", re.MULTILINE)


class Project:
    """The files of one scan and what lies beside them; answers are kept, so that each file is looked at once.

    files: every Python file of the scan. Files beside them are read too where an import leads there. notebooks: those of
    the scan, which import and call but are imported by nobody. folders: what was scanned with all that lies below it.
    """

    def __init__(self, files: Iterable[Path], notebooks: Iterable[Path] = (), folders: Iterable[Path] = ()) -> None:
        self._paths: dict[Path, str] = {}
        self._real_paths = discover.RealPaths()
        self.files = tuple(dict.fromkeys(self.absolute(path) for path in files))
        self.notebooks = tuple(dict.fromkeys(self.absolute(path) for path in notebooks))
        self.folders = tuple(os.path.realpath(path) for path in folders)
        self.layout = Layout(self.files, self.glance)
        self.facts = FileFacts(self.files)
        self.stars = StarImports(self)
        self.owners: dict[
            tuple[str, str, int, frozenset[str] | None], tuple[str, Asked]
        ] = {}  # see `ImportedNames._owner`
        self.meanings: dict[
            tuple[str, str, int, frozenset[str] | None], tuple[str, Asked]
        ] = {}  # see `ImportedNames._meant_in`
        self._glances: dict[str, Glance | None] = {}
        self._said: dict[tuple[str, Look], set[str]] = {}
        self._module_names: dict[str, ModuleNames | None] = {}
        self._sources: dict[str, Source | None] = {}
        self._updating: dict[str, tuple[bool, frozenset[bytes]] | None] = {}  # see `may_have_updates`
        self._marked: dict[str, FileSet] = {}
        self._below_top: dict[str, FileSet] = {}
        self._digests: dict[FileSet, str] = {}

    def absolute(self, path: Path) -> str:
        """The path of a file as this project knows it, links resolved."""
        if path not in self._paths:
            self._paths[path] = self._real_paths.of(path)
        return self._paths[path]

    def seen_from(self, path: Path) -> Neighbours:
        """What this project says to the checks of one file."""
        return Neighbours(self, self.absolute(path))

    def glance(self, path: str) -> Glance | None:
        """A first look at a file, None if it cannot be read or is larger than any that is audited."""
        if path not in self._glances:
            try:
                self._glances[path] = glance(read_bytes(path))
            except OSError:
                self._glances[path] = None
        return self._glances[path]

    def may_have_updates(self, path: str, name: str) -> bool:
        """Whether the file that defines a class or function of this name may update weights, as its bytes say.

        Yes for one that does not define it at its top level and so may take it from another file; no for one that cannot be read.
        """
        if path not in self._updating:
            try:
                data = read_bytes(path)
                self._updating[path] = _updates_in_code(data), frozenset(_DEFINED_AT_TOP.findall(data))
            except OSError:
                self._updating[path] = None
        known = self._updating[path]
        return known is not None and (known[0] or name.encode() not in known[1])

    def says_to_program(self, path: str, mark: str) -> bool:
        """Whether a file carries a mark that matters to a script which imports it, of a first look or of a closer one."""
        from perfaudit.static.project.program_marks import look_finding  # only scripts ask for them

        seen, look = self.glance(path), look_finding(mark)
        if seen is None or look is None:
            return seen is not None and mark in seen.marks
        if (path, look) not in self._said:
            try:
                self._said[path, look] = look(read_bytes(path), seen.imports, os.path.basename(path))
            except OSError:
                self._said[path, look] = set()
        return mark in self._said[path, look]

    def module_names(self, path: str) -> ModuleNames | None:
        """What a module binds at its top level; None if it cannot be read or parsed."""
        if path not in self._module_names:
            from perfaudit.static.module_names import ModuleNames  # only where a name of another file is asked for

            seen = self.glance(path)
            try:
                small = seen is not None and seen.size <= MAX_NEIGHBOUR_BYTES
                self._module_names[path] = ModuleNames(read_text(Path(path))[0]) if small else None
            except (OSError, Unreadable, SyntaxError, ValueError, RecursionError, MemoryError):
                self._module_names[path] = None
        return self._module_names[path]

    def source(self, path: str) -> Source | None:
        """A neighbour with its tree, None where there is none; those asked for last are kept."""
        if path in self._sources:
            self._sources[path] = self._sources.pop(path)
        else:
            seen = self.glance(path)
            try:
                small = seen is not None and seen.size <= MAX_NEIGHBOUR_BYTES
                self._sources[path] = found = read_source(Path(path), os.path.basename(path)) if small else None
                if found is not None:
                    found.reported_as = discover.shown_path(Path(path))
            except (Unreadable, RecursionError, MemoryError):
                self._sources[path] = None
            for oldest in list(self._sources)[:-MAX_SOURCES]:
                del self._sources[oldest]
        return self._sources[path]

    # ---- who imports and calls whom ----------------------------------------------------------------------------------

    @cached_property
    def graph(self) -> ImportGraph:
        """Who imports whom among the files of the scan."""
        return ImportGraph(self.files, self._imports)

    def _imports(self, file: str) -> Iterator[str]:
        seen = self.glance(file)
        folder = os.path.dirname(file)
        if seen is None:
            return
        yield from (path for module in seen.imports if (path := self.layout.module_file(folder, module)))
        for package in seen.picked:
            yield from self.layout.modules_of(folder, package)

    def calls(self, files: FileSet, name: str) -> list[CallShape]:
        """The calls in these files of whatever has this last name; none in a file that cannot be read or parsed."""
        return [call for number in self.numbers_calling(files, name) for call in self.calls_in(number, name)]

    def calls_in(self, number: int, name: str) -> list[CallShape]:
        """The same of one file, by its number."""
        return self._call_index.calls(number, name)

    def files_calling(self, files: FileSet, name: str) -> list[str]:
        """Those of these files that may call whatever has this last name."""
        return [self.files[number] for number in self.numbers_calling(files, name)]

    def numbers_calling(self, files: FileSet, name: str) -> list[int]:
        """The same as numbers."""
        return self._call_index.files_calling(name, files)

    @cached_property
    def _call_index(self) -> CallIndex:
        from perfaudit.static.call_index import CallIndex  # only where other files call what a check asks for

        return CallIndex(self.files)

    @cached_property
    def uses(self) -> Uses:
        """Which of what files define is used, and what they are there for."""
        from perfaudit.static.uses import Uses  # only where a question comes

        return Uses(self)

    @cached_property
    def settings(self) -> SettingsFiles:
        """What the settings files of the scan say."""
        from perfaudit.static.project.settings_files import SettingsFiles  # only where a check asks

        return SettingsFiles(self.layout, self.folders)

    # ---- sets of files -----------------------------------------------------------------------------------------------

    def only(self, path: str) -> FileSet:
        """The set of one file; an empty one where the scan does not hold it."""
        number = self._numbers.get(path)
        return 0 if number is None else 1 << number

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {file: number for number, file in enumerate(self.files)}

    def files_with_mark(self, mark: str) -> FileSet:
        """Files of the scan whose bytes carry a mark."""
        if mark not in self._marked:
            self._marked[mark] = self._files_where(
                lambda file: mark in seen.marks if (seen := self.glance(file)) else False
            )
        return self._marked[mark]

    def below_top_of(self, folder: str) -> FileSet:
        """Files of the scan that belong to the same project as a folder."""
        top = self.layout.top(folder)
        if top not in self._below_top:
            self._below_top[top] = self._files_where(lambda file: self.layout.top(os.path.dirname(file)) == top)
        return self._below_top[top]

    def program_of(self, path: str) -> FileSet:
        """Files that may run together with this one: its program; where nobody imports it, its project, for its name may be
        made up (`importlib.import_module(f"agents.{name}")`).
        """
        program = self.graph.program(path)
        is_alone = not self.graph.importers(path)
        return (program | self.below_top_of(os.path.dirname(path)) if is_alone else program) & ~self.only(path)

    def _files_where(self, holds: Callable[[str], bool]) -> FileSet:
        return int("".join("1" if holds(file) else "0" for file in reversed(self.files)) or "0", 2)

    # ---- what an answer depends on -----------------------------------------------------------------------------------

    def digest_of_marked(self, mark: str) -> str:
        """Changes when a file with this mark does."""
        return self.digest_of(self.files_with_mark(mark))

    def digest_of_importers(self, path: str) -> str:
        """Changes when a file that imports this one, directly or through others, does."""
        return self.digest_of(self.graph.importers(path))

    def digest_of(self, files: FileSet) -> str:
        """Changes when one of these files does, or when they are others."""
        if files not in self._digests:
            parts = (
                (file, seen.digest) for number in numbers_in(files) if (seen := self.glance(file := self.files[number]))
            )
            self._digests[files] = digest(repr(list(parts)).encode("utf-8", "replace"))[:32]
        return self._digests[files]

    @cached_property
    def imports_digest(self) -> str:
        """Changes when who imports whom changes, or what a file's bytes show."""
        parts = (
            (file, seen.imports, seen.picked, sorted(seen.marks)) for file in self.files if (seen := self.glance(file))
        )
        return digest(repr(list(parts)).encode("utf-8", "replace"))[:32]

    @cached_property
    def texts_digest(self) -> str:
        """Changes when any file or notebook of the scan does."""
        parts = [(file, seen.digest) for file in (*self.files, *self.notebooks) if (seen := self.glance(file))]
        return digest(repr(parts).encode("utf-8", "replace"))[:32]


def _updates_in_code(data: bytes) -> bool:
    """Whether a text may update weights, and not in its comments alone."""
    if not may_update_weights(data):
        return False
    from perfaudit.static.name_index import code_of  # few texts have such words

    return may_update_weights(code_of(data))
