"""The working files of a repository brought over a checkout of their commit: the same code twice, committed or not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePath

from perfaudit.gate.git import git
from perfaudit.gate.worktree import submodules

COPIED = 64 << 20  # bytes; a larger file is data, which is linked: copying it could take longer than measuring


def bring(here: Path, commit: str, place: Path) -> None:
    """Have the files of `commit` in `place` as they are in the repository `here`, in its submodules too.

    Brought are tracked files that are changed, removed or new, and untracked ones that git does not ignore, but for what
    is a link in `place`. A submodule that `place` lacks stays away. Raises GitFailed and OSError.
    """
    inside = dict(submodules(here, commit))
    for name in _may_differ(here, commit):
        if name not in inside and (place / name).parent.resolve().is_relative_to(place):  # not the user's own by a link
            _put(here / name, place / name)
    for name, wanted in inside.items():
        if (here / name / ".git").exists() and (place / name / ".git").exists():
            bring(here / name, wanted, place / name)


def differing(here: Path, commit: str) -> list[str]:
    """Files of the repository `here` that may not be as `commit` has them: changed, removed and new ones that git does not
    ignore, in its submodules too, relative to `here`. A submodule that is not there stands for itself. Raises GitFailed.
    """
    inside = dict(submodules(here, commit))
    found = [name for name in _may_differ(here, commit) if name not in inside]
    for name, wanted in inside.items():
        if (here / name / ".git").exists():
            found += [str(PurePath(name, file)) for file in differing(here / name, wanted)]
        else:
            found.append(name)
    return found


def _may_differ(here: Path, commit: str) -> list[str]:
    """Names of changed, removed and new files of a repository; a submodule is one of them."""
    changed = _names(
        here, "diff", "--name-only", "--no-renames", "--no-ext-diff", "--ignore-submodules=dirty", "-z", commit
    )
    untracked = _names(here, "ls-files", "--others", "--exclude-standard", "-z")
    return list(dict.fromkeys([*changed, *untracked]))


def _names(here: Path, *question: str) -> list[str]:
    return [str(PurePath(name)) for name in git(here, *question).split("\0") if name]


def _put(source: Path, place: Path) -> None:
    """Make a file, a link or a folder the same as another one, which may be none at all."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    if not os.path.lexists(source):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        place.symlink_to(source.readlink())
    elif source.is_dir():  # a repository of its own, of which this one knows no commit
        shutil.copytree(source, place, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    elif source.is_file():
        _copy(source, place)


def _copy(source: Path, place: Path) -> None:
    if source.stat().st_size > COPIED:
        place.symlink_to(source)
    else:
        shutil.copy2(source, place)
