"""What of a project is used, and what for: definitions that no file names, files that only evaluate. Read from texts."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from perfaudit.expressions import regex
from perfaudit.reading import read_bytes
from perfaudit.static.import_graph import numbers_in
from perfaudit.static.name_index import UNREAD, NameIndex
from perfaudit.static.project.layout import TOPS
from perfaudit.static.purpose import Purpose, purpose_of

if TYPE_CHECKING:
    from perfaudit.static.project import Project

Question = Literal["only evaluates", "lies in a whole project", "shows all uses", "may be named", "method may be named"]

_TOP_FILE = regex(r"(?i)(readme|licen[sc]e)\b|requirements[\w-]*\.txt$|environment[\w-]*\.ya?ml$|dockerfile$")
_PACKAGED = ("setup.py", "pyproject.toml", "setup.cfg")
_SAYS_PACKAGE = regex(rb"^\[(?:project|tool\.poetry|build-system|metadata)\]", re.MULTILINE)
# Names of files and folders for evaluation, also where a training calls it now and then.
_FOR_EVALUATION = regex(
    r"(?:^|/)(?:(?:\w*_)?(?:eval|evaluate|evaluation|inference|infer|demo)(?:_\w*)?$|(?:eval|evaluation|inference|demos?|metrics)/)"
)


class Uses:
    """Answers about one file of a project, or about a name that it defines. What the texts do not settle is used."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._purposes: dict[str, Purpose] = {}
        self._open: dict[str, bool] = {}
        self._answers: dict[tuple[str, Question, str], bool] = {}

    def answer(self, path: str, question: Question, name: str = "") -> bool:
        """Whether something holds of a file, or of a name that it defines."""
        key = (path, question, name)
        if key not in self._answers:
            self._answers[key] = self._answer(path, question, name)
        return self._answers[key]

    def _answer(self, path: str, question: Question, name: str) -> bool:
        if question == "only evaluates":
            return self.only_evaluates(path)
        if question == "lies in a whole project":
            return self._is_whole(os.path.dirname(path)) and not self._name_index.is_open
        if question == "shows all uses":
            return self.shows_all_uses(path)
        if self.is_looked_up(path):
            return True
        return self.is_method_named(name) if question == "method may be named" else self.is_named_elsewhere(path, name)

    @cached_property
    def _name_index(self) -> NameIndex:
        return NameIndex((*self._project.files, *self._project.notebooks))

    # ---- what is evaluated only ----------------------------------------------------------------------------------------

    def purpose(self, path: str) -> Purpose:
        """What a file is there for; one that cannot be read may train."""
        if path not in self._purposes:
            try:
                stem, suffix = os.path.splitext(os.path.basename(path))
                self._purposes[path] = purpose_of(read_bytes(path), stem, suffix == ".ipynb")
            except OSError:
                self._purposes[path] = Purpose(trains=True)
        return self._purposes[path]

    def only_evaluates(self, path: str) -> bool:
        """Whether a file is run, or imported by what is run, and nothing of that says anything of training.

        A file that others import counts where the scan holds all of them, and not where more may be installed with it.
        """
        if self.purpose(path).trains:
            return False
        importers = [self._project.files[number] for number in numbers_in(self._project.graph.importers(path))]
        if _FOR_EVALUATION.search(
            os.path.splitext(os.path.relpath(path, self._project.layout.top(os.path.dirname(path))))[0]
        ):
            return True
        folder = os.path.dirname(path)
        if not self._is_whole(folder):
            return False
        if not importers:
            return self.purpose(path).is_run and self.purpose(path).evaluates
        if self._is_installed(folder) or self._project.notebooks:
            return False
        if any(self.purpose(file).trains for file in importers) or self._name_index.is_open:
            return False
        started = [file for file in importers if self.purpose(file).is_run]
        return bool(started) and all(self.purpose(file).evaluates for file in started)

    # ---- what nobody names ---------------------------------------------------------------------------------------------

    def shows_all_uses(self, path: str) -> bool:
        """Whether what a file defines is used by files of this scan alone.

        The scan holds the whole project and a script of it, the file belongs to no package that others install, and no text
        looks names up that it does not spell.
        """
        folder = os.path.dirname(path)
        if folder not in self._open:
            self._open[folder] = not self._is_whole(folder) or self._is_installed(folder)
        return not self._open[folder] and not self._name_index.is_open and self._name_index.has_script

    def place(self, path: str) -> list[bool]:
        """What the folders around a file say: whether the scan holds the whole project, whether others install it."""
        folder = os.path.dirname(path)
        return [self._is_whole(folder), self._is_installed(folder)]

    def _is_whole(self, folder: str) -> bool:
        """Whether the scan holds all of the project in which a folder lies."""
        for scanned in self._project.folders:
            if folder == scanned or folder.startswith(os.path.join(scanned, "")):
                listing = self._project.layout.listing(scanned)
                if "__init__.py" in listing:
                    return False
                if listing.intersection(TOPS) or any(_TOP_FILE.match(name) for name in listing):
                    return True
                above = self._project.layout.listing(os.path.dirname(scanned))
                return not any(name.endswith((".py", ".ipynb")) for name in above) and not self._lies_in_project(
                    scanned
                )
        return False

    def _lies_in_project(self, folder: str) -> bool:
        """Whether a folder above one is the top of a project."""
        while (above := os.path.dirname(folder)) != folder:
            folder = above
            if self._project.layout.listing(folder).intersection(TOPS):
                return True
        return False

    def _is_installed(self, folder: str) -> bool:
        """Whether a folder is part of a package that others install, whose public names are there for them."""
        if "__init__.py" not in self._project.layout.listing(folder):
            return False
        while not (found := self._project.layout.listing(folder).intersection(_PACKAGED)):
            above = os.path.dirname(folder)
            if above == folder or ".git" in self._project.layout.listing(folder):
                return False
            folder = above
        if "setup.py" in found:
            return True
        texts = (os.path.join(folder, name) for name in found)
        return any(_SAYS_PACKAGE.search(read_bytes(text)) for text in texts)

    def is_method_named(self, name: str) -> bool:
        """Whether some file of the scan names something so behind a dot, or in a text from which names are looked up."""
        return name.encode() in self._name_index.methods

    def is_looked_up(self, path: str) -> bool:
        """Whether a file, or one that imports it, looks names up that no text spells."""
        names = self._name_index.names
        importers = (self._project.files[number] for number in numbers_in(self._project.graph.importers(path)))
        return bool(names.get(path, UNREAD).lookups) or any("modules" in names[file].lookups for file in importers)

    def is_named_elsewhere(self, path: str, name: str) -> bool:
        """Whether another file of the scan names what this one binds at its top: imports it, or asks the module for it."""
        module = os.path.splitext(os.path.basename(path))[0]
        module = os.path.basename(os.path.dirname(path)) if module == "__init__" else module
        importers = {self._project.files[number] for number in numbers_in(self._project.graph.importers(path))}
        return any(
            self._may_name(file, path, name, module, file in importers)
            for file in self._name_index.spelling(name)
            if file != path
        )

    def _may_name(self, file: str, path: str, name: str, module: str, imports: bool) -> bool:
        """Whether a file that spells a name means what another one binds; imports: whether it imports that, in any way."""
        names, word = self._name_index.names[file], name.encode()
        if word in names.quoted:
            return True
        if file.endswith(".ipynb"):
            return True
        seen = self._project.glance(file)
        if seen is None:
            return False
        named = (entry for entry in seen.imports if entry.rpartition(".")[2] == name)
        if any(not self._leads_elsewhere(file, entry, path) for entry in named):
            return True
        if "*" in seen.last_imported and imports:
            return True
        return (imports or module in seen.last_imported) and self._may_ask_module(file, path, word)

    def _may_ask_module(self, file: str, path: str, word: bytes) -> bool:
        """Whether a file that imports this one as a module asks it for a name: `utils.f`, or whatever else it became there."""
        known_as = {os.path.splitext(os.path.basename(path))[0].encode()}
        imported = seen.imports if (seen := self._project.glance(file)) else ()
        for entry, further in zip(imported, (*imported[1:], ""), strict=True):
            if self._project.layout.module_file(os.path.dirname(file), entry) == path and not further.startswith(
                f"{entry}."
            ):
                if word in self._name_index.methods:  # the module may be handed on
                    return True
                known_as.add(entry.rpartition(".")[2].encode())
        dotted = self._name_index.names[file].dotted
        return any(name == word and before in known_as for before, name in dotted)

    def _leads_elsewhere(self, file: str, imported: str, path: str) -> bool:
        """Whether what a file imports surely is what another file than this one defines."""
        module, _, name = imported.rpartition(".")
        found = self._project.layout.module_file(os.path.dirname(file), module if module.strip(".") else module + ".")
        return bool(found) and found != path and name.encode() in self._name_index.names.get(found, UNREAD).defined
