"""Where a file that the user names lies: not behind a link inside a project, nor in a folder of git."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import deque
from pathlib import Path

from perfaudit.files.descriptors import Refused

MOST_STEPS = 400  # pieces of a path with its links followed; more are links in a circle
_MARKS = (".git", "pyproject.toml")  # of the top of a project
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")  # in names, by HFS+: git's utf8.c has the list


def project_top(folder: Path) -> Path | None:
    """The top of the project that a folder lies in, None for one that lies in none.

    That is the nearest folder with `.git` or `pyproject.toml`; without one, the working directory with what is below it.
    folder: without links.
    """
    for top in (folder, *folder.parents):
        if any(os.path.lexists(top / mark) for mark in _MARKS):
            return top
    here = Path.cwd()
    return here if folder.is_relative_to(here) and here != Path(here.anchor) else None


def destination(path: Path) -> Path:
    """Where a file that the user names to be written lies, links outside of projects followed.

    Raises Refused where a link inside a project is on the way, and for what lies in a folder of git.
    """
    real, inside = _follow_links(path)
    if inside:
        raise Refused(
            f"{inside[0]} is a link, and nothing is written through a link inside a project; name the file it leads to: {real}"
        )
    _refuse_git(path, real)
    return real


def source_place(path: Path) -> Path:
    """Where a source file that is to be patched lies, links followed, as long as those of a project stay inside it.

    Raises Refused for others, and for what lies in a folder of git.
    """
    real, inside = _follow_links(path)
    for link in inside:
        top = project_top(link.parent)
        if top is not None and not real.is_relative_to(top):
            raise Refused(f"{link} is a link that leads out of the project, to {real}: name that file to patch it")
    _refuse_git(path, real)
    return real


def _follow_links(path: Path) -> tuple[Path, list[Path]]:
    """Where a path leads, whether that exists or not, and the links on the way that lie inside a project."""
    whole = path.absolute()
    here, parts = Path(whole.anchor), deque(whole.parts[1:])
    inside: list[Path] = []
    for _ in range(MOST_STEPS):
        if not parts:
            return here, inside
        part = parts.popleft()
        if part == os.pardir:
            here = here.parent
            continue
        place = here / part
        if not place.is_symlink():
            here = place
            continue
        if project_top(here) is not None:
            inside.append(place)
        if not parts and is_special(place):  # /dev/stdout: what it leads to may have no name
            return place, inside
        target = place.readlink()
        here = Path(target.anchor) if target.is_absolute() else here
        parts.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def is_special(path: Path) -> bool:
    """Whether something is there that is neither a file nor a folder: a terminal, a pipe."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _is_git(name: str) -> bool:
    """Whether a file system may take a name for `.git`: without regard to case, to signs that HFS+ ignores, and to what NTFS
    ignores at the end (`core.protectHFS` and `core.protectNTFS` of git)."""
    plain = _IGNORED.sub("", name).casefold().partition(":")[0].rstrip(". ")
    return plain in (".git", "git~1")


def _refuse_git(path: Path, real: Path) -> None:
    for place in (path, real):
        if any(_is_git(part) for part in place.parts):
            raise Refused(f"{path} lies in a folder of git, where perfaudit writes nothing")
    for folder in real.parents:  # of another name: a bare repository, or one that lies apart from its files
        if (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir():
            raise Refused(f"{path} lies in {folder}, a folder of git, where perfaudit writes nothing")
