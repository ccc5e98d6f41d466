"""Which settings files a project has, and what they set under a name. Reads them where a check asks, and runs none.

Settings that say different things in different files are told as they are: whoever asks decides what they are worth together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfaudit.reading import digest, read_bytes
from perfaudit.records import NamedTuple
from perfaudit.static import discover
from perfaudit.static.project.layout import TOPS, Layout
from perfaudit.static.project.settings_text import (
    JSON,
    SUFFIXES,
    UNREAD,
    Section,
    Setting,
    sections_of,
    values_by_lines,
)

MAX_FILES = 400  # of a project; where there are more, it is not known what they say
MAX_FOLDERS = 4000  # that are listed to find them
MAX_FOLDERS_BESIDE = 200  # of a file that is scanned by itself: its folder may be somebody's home
MAX_BYTES = 256 << 10  # of one, as people write them
MAX_JSON_BYTES = 64 << 10  # most larger ones hold results or labels
# What a run leaves behind: a copy of its settings.
_OF_RUNS = {"outputs", "multirun", "wandb", "mlruns", "lightning_logs", "test", "tests", "node_modules"}


class Found(NamedTuple):
    """A setting and where it stands. file: its path below the project's folder, with "/"; made: see `Section.class_made`."""

    setting: Setting
    file: str
    made: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.setting.line}" if self.setting.line else self.file


class SettingsFiles:
    """The settings files of the projects of one scan; each project's are listed once.

    folders: what was scanned with all that lies below it. Of a file outside of them, its own folder counts.
    """

    def __init__(self, layout: Layout, folders: Sequence[str]) -> None:
        self._layout = layout
        self._folders = folders
        self._files: dict[str, list[str] | None] = {}
        self._texts: dict[tuple[str, str], list[tuple[str, bytes]]] = {}

    def settings(self, path: str, name: str) -> list[Found] | None:
        """What the settings files of the project of a file set under a name; None where it has too many of them."""
        found: list[Found] = []
        for file, text, sections in self._read(path, name):
            if sections is None:
                said = values_by_lines(text, name) if text else [(UNREAD, 0)]
                found += [Found(Setting((), value, line), file) for value, line in said]
                continue
            for section in sections:
                if section.keys[-1:] == (name,):  # of a name with a section of its own, as trackers of runs write it
                    found.append(Found(Setting(section.keys, UNREAD, 0), file))
                set_here = [each for each in section.settings if each.keys[-1] == name]
                found += [
                    Found(each._replace(line=each.line or _only_line(text, name)), file, section.class_made)
                    for each in set_here
                ]
        return found if self._file_names(path) is not None else None

    def sections(self, path: str, class_name: str) -> list[tuple[Section, str]] | None:
        """The sections that hold the arguments of a class, by its last name, and their files; None as above."""
        found = [
            (section, file)
            for file, _, sections in self._read(path, class_name)
            for section in sections or ()
            if section.class_made == class_name
        ]
        return found if self._file_names(path) is not None else None

    def digest(self, path: str, name: str) -> str:
        """Changes when what a name stands for in the settings files of a project may have."""
        if self._file_names(path) is None:
            return "too many"
        return digest(repr(self._naming(path, name)).encode("utf-8", "replace"))[:32]

    def _read(self, path: str, name: str) -> Iterator[tuple[str, str, list[Section] | None]]:
        """The files that have a name in their text, their texts and sections; None for the sections of what cannot be read."""
        for file, data in self._naming(path, name):
            try:
                text = data.decode("utf-8-sig")
            except UnicodeDecodeError:
                yield file, "", None
                continue
            yield file, text, sections_of(text, os.path.splitext(file)[1].lower())

    def _naming(self, path: str, name: str) -> list[tuple[str, bytes]]:
        """The settings files of a project whose bytes hold a name, and these bytes."""
        root = self._root(path)
        if (root, name) not in self._texts:
            found = []
            for file in self._file_names(path) or ():
                try:
                    data = read_bytes(os.path.join(root, file), MAX_JSON_BYTES if file.endswith(JSON) else MAX_BYTES)
                except OSError:
                    continue
                if name.encode("utf-8", "surrogatepass") in data:
                    found.append((file, data))
            self._texts[root, name] = found
        return self._texts[root, name]

    def _root(self, path: str) -> str:
        """The folder of a file's project as far as the scan holds it."""
        folder = os.path.dirname(path)
        top = self._layout.top(folder)
        around = [each for each in self._folders if _is_below(folder, each)]
        scanned = min(around, key=len, default=folder)
        is_all = self._layout.holds_all(top) and not self._layout.listing(top).intersection(TOPS)
        return top if _is_below(top, scanned) and not is_all else scanned

    def _file_names(self, path: str) -> list[str] | None:
        """Paths of the settings files of a file's project, below its folder; None where they are too many."""
        root = self._root(path)
        if root not in self._files:
            is_scanned = any(_is_below(root, folder) for folder in self._folders)
            most = MAX_FOLDERS if is_scanned else MAX_FOLDERS_BESIDE
            listed = discover.files_below(Path(root), SUFFIXES, most, _OF_RUNS)
            self._files[root] = None if listed is None or len(listed) > MAX_FILES else listed
        return self._files[root]


def _is_below(path: str, folder: str) -> bool:
    return f"{path}{os.sep}".startswith(f"{folder.rstrip(os.sep)}{os.sep}")


def _only_line(text: str, name: str) -> int:
    """The line of a text that has a name, 0 where several have it: of JSON and TOML a parser tells none."""
    found = [number for number, line in enumerate(text.splitlines(), 1) if name in line]
    return found[0] if len(found) == 1 else 0
