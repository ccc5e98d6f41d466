"""Tells which installed modules are copies of the project that is judged: the reference would run them instead of its own."""

from __future__ import annotations

import functools
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import urlsplit
from urllib.request import url2pathname

FOLDERS_OF_PACKAGES = {"site-packages", "dist-packages"}
MARKS_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")
GENERATED = {"_version.py", "version.py", "__version__.py"}  # written by builds: they differ, and make nothing slower
PYTHON = {".py"}
NATIVE = {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".pxd", ".pyx", ".rs", "CMakeLists.txt", "setup.py"}
_LAYOUTS = ("", "src")


@dataclass(frozen=True, slots=True)
class _Top:
    """A package or module as it is installed. place: the folder that pip had it from, relative to the top of the project;
    None where nothing says that it came from there.
    """

    site: str
    name: str  # of the folder, or of the file with its suffix
    place: str | None


def is_installed(path: str) -> bool:
    return bool(FOLDERS_OF_PACKAGES & set(PurePath(path).parts))


@functools.lru_cache(maxsize=4096)
def is_installed_below(path: str, root: str) -> bool:
    """Whether a path inside a folder belongs to an environment, or to installed packages, that lie in that folder too."""
    relative = PurePath(path).relative_to(root)
    if FOLDERS_OF_PACKAGES & set(relative.parts):
        return True
    folders = [Path(root, parent) for parent in (relative, *relative.parents) if parent.parts]
    return any((folder / mark).exists() for folder in folders for mark in MARKS_OF_ENVIRONMENTS)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it, as they are written; nothing lies in ""."""
    return bool(folder) and (path == folder or path.startswith(folder.rstrip(os.sep) + os.sep))


def copies(files: Iterable[str], head: str, base: str) -> set[str]:
    """Those of these installed files that are the project's own, and that are not the same in its two checkouts.

    files: paths in site-packages; head, base: real paths of the checkouts. A file is the project's if pip installed it from
    there, or if the project has a package of its name at the top or in `src`. What both checkouts hold alike is no copy
    that matters: whichever is run, it is the same code. A module without a text there, compiled or of a package that is
    not found, differs if a source that it may be made of does.
    """
    places = dict(_places(head))
    tops: dict[_Top, list[tuple[str, PurePath]]] = {}
    for file in files:
        site, relative = _split(file)
        name = relative.parts[0]
        tops.setdefault(_Top(site, name, places.get((site, name))), []).append((file, relative))
    found: set[str] = set()
    for top, members in tops.items():
        now, before = (_source(Path(root), top, Path(head), Path(base)) for root in (head, base))
        if now is None and before is None and top.place is None:
            continue
        for file, relative in members:
            if relative.name in GENERATED:
                continue
            if relative.suffix == ".py" and (now or before):
                differs = _bytes(now, relative) != _bytes(before, relative)
            else:
                kinds = PYTHON if relative.suffix == ".py" else NATIVE
                differs = _sources_differ(Path(head, top.place or ""), Path(base, top.place or ""), kinds)
            if differs:
                found.add(file)
    return found


def _split(file: str) -> tuple[str, PurePath]:
    """The folder of packages that a file lies in, its links followed, and the file's path there."""
    parts = PurePath(file).parts
    last = max(n for n, part in enumerate(parts[:-1]) if part in FOLDERS_OF_PACKAGES) + 1
    return os.path.realpath(PurePath(*parts[:last])), PurePath(*parts[last:])


def _source(root: Path, top: _Top, head: Path, base: Path) -> Path | None:
    """The folder of a checkout that holds the package or module that is installed; None without one.

    A mere folder of the same name (`datasets/` with images) is no package, unless the installed one is known to be ours.
    """
    marks = [top.name if PurePath(top.name).suffix == ".py" else f"{top.name}/__init__.py"]
    if top.place is None and not Path(top.site, marks[0]).is_file():
        return None
    if top.place is not None:
        marks.append(top.name)
    layouts = _LAYOUTS if top.place is None else tuple(_layouts_below(top.place, head, base))
    return next((root / layout for mark in marks for layout in layouts if (root / layout / mark).exists()), None)


def _layouts_below(place: str, *roots: Path) -> Iterator[str]:
    """Folders relative to the top that may hold the packages of a distribution: its own, src, and the others in it."""
    yield from (str(Path(place, layout)) for layout in _LAYOUTS)
    for root in roots:
        if (root / place).is_dir():
            names = sorted(entry.name for entry in os.scandir(root / place) if entry.is_dir())
            yield from (str(Path(place, name)) for name in names if not name.startswith((".", "build")))


def _bytes(source: Path | None, relative: PurePath) -> bytes | None:
    try:
        return (source / relative).read_bytes() if source else None
    except OSError:
        return None


def _sources_differ(head: Path, base: Path, kinds: set[str]) -> bool:
    """Whether the head lacks a source of these kinds that the base has, or has it otherwise.

    Not whether it has more: what a build writes is here only, and a source that is new is named in one that was there.
    """
    if not base.is_dir():
        return head.is_dir()
    for folder, _, names in os.walk(base):
        for path in (Path(folder, name) for name in names if {name, PurePath(name).suffix} & kinds):
            relative = path.relative_to(base)
            if _bytes(base, relative) != _bytes(head, relative):
                return True
    return False


# ---- what pip says ---------------------------------------------------------------------------------------------------


def _places(head: str) -> Iterator[tuple[tuple[str, str], str]]:
    """For folder of packages and name in it: the folder, relative to the top of the head, that it was installed from.

    Not for editable installs. Source: "Recording the Direct URL Origin of installed distributions" of the specifications
    for Python packages.
    """
    folders = {
        os.path.realpath(path) for path in (*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    }
    for folder in filter(is_installed, folders):
        for url in Path(folder).glob("*.dist-info/direct_url.json"):
            if (place := _place(url, head)) is not None:
                yield from (((folder, name), place) for name in _top_names(url.parent / "RECORD"))


def _place(url: Path, head: str) -> str | None:
    """The folder below the head that a distribution was installed from, "." for its top. None for all others, for
    editable ones, and for archives: a wheel that lies in a project may be of any library.
    """
    try:
        said = json.loads(url.read_text(encoding="utf-8"))
        parts = urlsplit(said["url"])
        if parts.scheme != "file" or "dir_info" not in said or said["dir_info"].get("editable"):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    source = os.path.realpath(url2pathname(parts.path))
    return os.path.relpath(source, head) if is_below(source, head) else None


def _top_names(record: Path) -> set[str]:
    """The names of what a distribution has put into the folder of packages, as its list of files has them."""
    try:
        lines = record.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return set()
    tops = {PurePath(line.split(",")[0].strip('"')).parts[:1] for line in lines}
    return {top[0] for top in tops if top and not top[0].endswith((".dist-info", ".data", ".."))}
