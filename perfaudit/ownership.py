"""Which folders at and above a place may say something of it: up to its repository's top, and none of another user's."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

# Folders, separated as in PATH. Their settings count whoever owns them, and git runs the programs that they name.
SAFE = "PERFAUDIT_SAFE_DIRECTORY"
ROOT = 0


def folders_above(start: Path) -> tuple[Path, ...]:
    """The folders whose settings may hold for `start`, itself first, whoever owns them.

    In a repository, those up to its top: what lies above it is another project. Outside of one nobody says where the
    project ends, so that every step up has to be sure: it ends below the home folder, at the end of the file system, and
    below what is another user's or open to everybody (/tmp, say, where anybody may leave a pyproject.toml).
    """
    inside = []
    for folder in (start, *start.parents):
        inside.append(folder)
        if os.path.lexists(folder / ".git"):
            return tuple(inside)
    return (start, *_sure_steps(start))


def _sure_steps(start: Path) -> Iterable[Path]:
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111  # without a home it stays as it is
    try:
        device = start.stat().st_dev
        for folder in start.parents:
            state = folder.stat()
            is_open = bool(state.st_mode & stat.S_IWOTH)
            if os.path.realpath(folder) == home or state.st_dev != device or is_open or not is_ours(folder):
                return
            yield folder
    except OSError:  # what cannot be looked at is not ours to take settings from
        return


def is_ours(path: Path) -> bool:
    """Whether a folder, or a file and the folder around it, are this user's or root's, or said to be safe.

    As git has it for repositories (`safe.directory`): who owns one of them decides what is in the file. Of a link, both
    the link and what it leads to count.
    """
    ours = _our_ids()
    if ours is None:
        return True
    real = Path(os.path.realpath(path))
    places = (path, real) if path.is_dir() else (path, real, path.parent, real.parent)
    try:
        owners = set(map(_owner, places))
    except OSError:
        return False
    return owners <= ours or _is_safe(real)


def not_ours(paths: Iterable[Path]) -> str:
    """A line that says that files are passed over because another user owns them, and what accepts them; "" for none."""
    theirs = sorted(paths)
    if not theirs:
        return ""
    import shlex

    top = min((path.parent for path in theirs), key=lambda folder: len(folder.parts))
    names = ", ".join(path.relative_to(top).as_posix() for path in theirs)
    return (
        f"{top}: {names}: not used, because another user owns {'it' if len(theirs) == 1 else 'them'} or the folder; "
        f"to use {'it' if len(theirs) == 1 else 'them'} all the same, set {SAFE}={shlex.quote(str(top))}"
    )


def _our_ids() -> frozenset[int] | None:
    """Users whose files are ours; None on a system without users. Under sudo also the one who called it, as git has it."""
    if not hasattr(os, "geteuid"):
        return None
    me = os.geteuid()
    caller = os.environ.get("SUDO_UID", "") if me == ROOT else ""
    return frozenset({me, ROOT, *([int(caller)] if caller.isascii() and caller.isdigit() else [])})


def _owner(path: Path) -> int:
    """The user who owns a path; of a link, the link itself."""
    return path.lstat().st_uid


def is_accepted(path: Path) -> bool:
    """Whether the user has said that a path is safe, or a folder it lies in."""
    return _is_safe(Path(os.path.realpath(path)))


def _is_safe(real: Path) -> bool:
    named = [name for name in os.environ.get(SAFE, "").split(os.pathsep) if os.path.isabs(name)]  # noqa: PTH117
    return any(real.is_relative_to(os.path.realpath(name)) for name in named)
