"""Which settings files a project has, and what they set under a name. Reads them where a check asks, and runs none.

Settings that say different things in different files are told as they are: whoever asks decides what they are worth together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfaudit.expressions import regex
from perfaudit.reading import TooLarge, digest, read_bytes
from perfaudit.records import NamedTuple
from perfaudit.static import discover
from perfaudit.static.project.layout import TOPS, Layout
from perfaudit.static.project.settings_text import (
    CLASS_KEYS,
    JSON,
    OTHERS,
    SUFFIXES,
    UNREAD,
    YAML,
    Section,
    Setting,
    sections_of,
    values_by_lines,
)

MAX_FILES = 400  # of a project; where there are more, it is not known what they say
MAX_FOLDERS, MAX_ENTRIES = 4000, 50_000  # that are listed to find them
MAX_BYTES = 256 << 10  # of one, as people write them; larger JSON holds results or labels, and is passed over
MAX_ALL_BYTES = 16 << 20  # of all
# What a run leaves behind (a copy of its settings), and what is no training of the project.
_OF_RUNS = {"outputs", "multirun", "wandb", "mlruns", "lightning_logs", "results", "logs", "runs", "checkpoints"}
_NO_SETTINGS = frozenset({*_OF_RUNS, "tests", "docs", "doc", "docker", "deploy", "helm"})
_NO_SETTINGS_FILE = regex(
    r"(^|/)(docker-compose|mkdocs|environment|conda|codecov|package|tsconfig|_config)[^/]*$", re.IGNORECASE
)
# hydra puts such sections elsewhere: `# @package data`, where the folder is no `data`, and `- speed@data: large`. Blanks are read
# within a line: a file may hold a hundred thousand empty ones.
_PACKAGE = regex(r"^[ \t]*#[ \t]*@package\b[ \t:]*(\S*)", re.MULTILINE)
_AT_PACKAGE = regex(r"^[ \t]*-[ \t]+[\w/ ]{1,80}@", re.MULTILINE)
_FILLED_IN = regex(r"\$\{[^}]*\}")


class Found(NamedTuple):
    """A setting and where it stands. file: its path below the project's folder, with "/"; made: see `Section.class_made`.

    shown: its path as reports show it.
    """

    setting: Setting
    file: str
    made: str = ""
    shown: str = ""

    @property
    def place(self) -> str:
        """File and line, for messages: a grave accent, which ends such a place there, is left out."""
        shown = (self.shown or self.file).replace("`", "")
        return f"{shown}:{self.setting.line}" if self.setting.line else shown


class SettingsFiles:
    """The settings files of the projects of one scan; each project's are listed once, and each name is looked for once.

    folders: what was scanned with all that lies below it. Of a part of a project nothing is known.
    """

    def __init__(self, layout: Layout, folders: Sequence[str]) -> None:
        self._layout = layout
        self._folders = folders
        self._texts: dict[str, list[tuple[str, str | None]] | None] = {}
        self._settings: dict[tuple[str, str], list[Found]] = {}
        self._sections: dict[tuple[str, str], list[tuple[Section, str]]] = {}
        self._classes: dict[str, list[tuple[str, str]]] = {}
        self._choices: dict[str, list[tuple[str, object, str]]] = {}
        self._tops: dict[tuple[str, str], frozenset[str]] = {}
        self._digests: dict[tuple[str, str], str] = {}

    def settings(self, path: str, name: str) -> list[Found] | None:
        """What the settings files of the project of a file set under a name; None where they are too many, or not all in sight.

        A file that has the name and does not clearly set it, and one that cannot be read, has it UNREAD.
        """
        texts, key = self._texts_of(path), (self._root(path), name)
        if texts is None:
            return None
        if key not in self._settings:
            shown = {
                file: discover.shown_path(Path(key[0]) / file) for file, text in texts if text is None or name in text
            }
            found = [each for file, text in texts for each in _set_in(file, text, name)]
            self._settings[key] = [each._replace(shown=shown[each.file]) for each in found]
        return self._settings[key]

    def sections(self, path: str, class_name: str) -> list[tuple[Section, str]] | None:
        """The sections that hold the arguments of a class, by its last name, and their files; None as above."""
        texts, key = self._texts_of(path), (self._root(path), class_name)
        if texts is None:
            return None
        if key not in self._sections:
            self._sections[key] = [
                (section, file)
                for file, text in texts
                if text is not None and class_name in text
                for section in sections_of(text, _suffix(file)) or ()
                if section.class_made.rpartition(".")[2] == class_name
            ]
        return self._sections[key]

    def texts(self, path: str) -> list[tuple[str, str]]:
        """The settings files of a file's project that can be read, of kinds that are, and their texts."""
        return [
            (file, text) for file, text in self._texts_of(path) or () if text is not None and not file.endswith(OTHERS)
        ]

    def classes(self, path: str) -> list[tuple[str, str]]:
        """The classes that sections of settings files give their arguments, as they are named there, and their files."""
        root = self._root(path)
        if root not in self._classes:
            self._classes[root] = [
                (section.class_made, file)
                for file, text in self.texts(path)
                if any(key in text for key in CLASS_KEYS)
                for section in sections_of(text, _suffix(file)) or ()
                if section.class_made
            ]
        return self._classes[root]

    def choices(self, path: str) -> list[tuple[str, object, str]]:
        """What hydra's lists of defaults choose: a group as it is named there, what stands behind it, and the file."""
        root = self._root(path)
        if root not in self._choices:
            self._choices[root] = [
                (each.keys[-1], each.value, file)
                for file, text in self.texts(path)
                if "defaults" in text
                for section in sections_of(text, _suffix(file)) or ()
                for each in section.settings
                if each.keys[-2:-1] == ("defaults",)
            ]
        return self._choices[root]

    def is_lacking_beside(self, path: str, found: Sequence[Found]) -> bool:
        """Whether a file beside those of some settings lacks them and looks alike: by two keys on top, or by the section."""
        texts = dict(self._texts_of(path) or ())
        having = {each.file for each in found}
        beside = {(_folder(file), _suffix(file)) for file in having}
        others = [file for file in texts if file not in having and (_folder(file), _suffix(file)) in beside]
        for each in found if others else ():
            own = self._keys_on_top(path, each.file, texts.get(each.file))
            for file in others:
                if (_folder(file), _suffix(file)) == (_folder(each.file), _suffix(each.file)):
                    alike = own & self._keys_on_top(path, file, texts[file])
                    if len(alike) > 1 or (len(each.setting.keys) > 1 and each.setting.keys[0] in alike):
                        return True
        return False

    def moves_sections(self, path: str) -> bool:
        """Whether some file of hydra's puts sections elsewhere than where they stand."""
        texts = self._texts_of(path) or ()
        return any(text is not None and "@" in text and _moves_sections(file, text) for file, text in texts)

    def digest(self, path: str, name: str) -> str:
        """Changes when what a name stands for in the settings files of a project may have; of "" which keys they have on top."""
        texts, key = self._texts_of(path), (self._root(path), name)
        if texts is None:
            return "not known"
        if key not in self._digests:
            keys = [(file, sorted(self._keys_on_top(path, file, text))) for file, text in texts if not name]
            parts = [
                (file, text and digest(text.encode()))
                for file, text in texts
                if text is None or (name and name in text)
            ]
            names = [file for file, _ in texts]
            self._digests[key] = digest(repr((keys, parts, names)).encode("utf-8", "replace"))[:32]
        return self._digests[key]

    def _keys_on_top(self, path: str, file: str, text: str | None) -> frozenset[str]:
        key = (self._root(path), file)
        if key not in self._tops:
            self._tops[key] = _keys_on_top(file, text)
        return self._tops[key]

    def _texts_of(self, path: str) -> list[tuple[str, str | None]] | None:
        """The settings files of a file's project, below its folder, and their texts, None for what cannot be read.

        None for all of them where they are too many, or where not all of the project is in sight.
        """
        root = self._root(path)
        if root not in self._texts:
            kinds = (*SUFFIXES, *OTHERS)
            names = discover.files_below(Path(root), kinds, MAX_FOLDERS, MAX_ENTRIES, _NO_SETTINGS) if root else None
            self._texts[root] = None if names is None or len(names) > MAX_FILES else _read_all(root, names)
        return self._texts[root]

    def _root(self, path: str) -> str:
        """The folder of a file's project, "" where the scan holds a part of it alone."""
        folder = os.path.dirname(path)
        top = self._layout.top(folder)
        is_marked = bool(self._layout.listing(top).intersection(TOPS))
        around = [each for each in self._folders if _is_below(folder, each)]
        scanned = min(around, key=len, default="")
        if is_marked:
            return top if top == folder or (scanned and _is_below(top, scanned)) else ""
        return scanned if self._layout.holds_all(top) or not _is_below(top, scanned) else top


def _moves_sections(file: str, text: str) -> bool:
    """Whether hydra puts sections of a file elsewhere than where its folders say."""
    group = file.rpartition("/")[0].replace("/", ".")
    packages = [match[1] for match in _PACKAGE.finditer(text)]
    stays = all(each in ("_global_", "_group_") or (each and f".{group}".endswith(f".{each}")) for each in packages)
    return not stays or _AT_PACKAGE.search(text) is not None


def _read_all(root: str, names: Sequence[str]) -> list[tuple[str, str | None]] | None:
    """The texts of files, None for one that cannot be read; None for all where they are too large together.

    Without JSON that is too large, which holds results, and what is no settings file by its name.
    """
    found: list[tuple[str, str | None]] = []
    room = MAX_ALL_BYTES
    for name in names:
        if _NO_SETTINGS_FILE.search(name):
            continue
        path = os.path.join(root, name)
        text = None
        try:
            if not os.path.islink(path):
                data = read_bytes(path, MAX_BYTES)
                room -= len(data)
                text = None if b"\0" in data else data.decode("utf-8-sig")
        except TooLarge:
            if name.lower().endswith(JSON):
                continue
        except (OSError, UnicodeDecodeError):
            text = None
        if room < 0:
            return None
        if text is not None or not name.endswith(OTHERS):
            found.append((name, text))
    return found


def _set_in(file: str, text: str | None, name: str) -> Iterator[Found]:
    """What a settings file sets under a name."""
    if text is None:
        yield Found(Setting((), UNREAD, 0), file)
        return
    if name not in text:
        return
    if file.endswith(OTHERS):
        yield Found(Setting((), UNREAD, 0), file)
        return
    sections = sections_of(text, _suffix(file))
    if sections is None:
        yield from (Found(Setting((), value, line), file) for value, line in values_by_lines(text, name))
        return
    lines = set()
    for section in sections:
        if section.keys[-1:] == (name,):  # of a name with a section of its own, as trackers of runs write it
            yield Found(Setting(section.keys, UNREAD, 0), file)
        for each in section.settings:
            if each.keys[-1] == name:
                lines.add(each.line)
                line = each.line or _only_line(text, name)
                yield Found(each._replace(line=line), file, section.class_made)
    count = sum(each.keys[-1] == name for section in sections for each in section.settings)
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    named = [
        n
        for n, line in enumerate(text.splitlines(), 1)
        if name in line
        for _ in word.findall(_line_without_mentions(line, file))
    ]
    if (len(named) > count) if not file.lower().endswith(YAML) else (set(named) - lines):
        yield Found(Setting((), UNREAD, 0), file)


def _line_without_mentions(line: str, file: str) -> str:
    """A line without comments, and without what is filled in from another setting."""
    if not file.lower().endswith(JSON):
        line = "" if line.lstrip().startswith("#") else line.partition(" #")[0]
    return _FILLED_IN.sub("", line)


def _keys_on_top(file: str, text: str | None) -> frozenset[str]:
    sections = sections_of(text, _suffix(file)) if text is not None else None
    found = (keys for section in sections or () for keys in (section.keys, *(each.keys for each in section.settings)))
    return frozenset(keys[0] for keys in found if keys)


def _suffix(file: str) -> str:
    return os.path.splitext(file)[1].lower()


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _is_below(path: str, folder: str) -> bool:
    return f"{path}{os.sep}".startswith(f"{folder.rstrip(os.sep)}{os.sep}")


def _only_line(text: str, name: str) -> int:
    """The line of a text that has a name, 0 where several have it: of JSON and TOML a parser tells none."""
    found = [number for number, line in enumerate(text.splitlines(), 1) if name in line]
    return found[0] if len(found) == 1 else 0
