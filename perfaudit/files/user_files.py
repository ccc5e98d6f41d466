"""Files that the user names, or has patched: made, replaced, and written to."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from perfaudit.files.descriptors import FOLDER, OPEN, Refused, has_lock
from perfaudit.files.folder import Folder
from perfaudit.files.places import destination, is_special, project_top, source_place
from perfaudit.files.temporary import sweep_once, take_name, temporary_file, temporary_name


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that the user names: as `destination` has it, through a temporary one, so that a full disk or a crash
    leaves the old one whole.

    Mode and owner stay. What is no regular file (`/dev/stdout`, a pipe) is written to. Raises OSError, also for a file
    that is write-protected.
    """
    _replace(destination(path), data)


def replace_source(path: Path, data: bytes) -> None:
    """The same for a source file with its patch, found as `source_place` has it."""
    _replace(source_place(path), data)


def create_file(path: Path, write: Callable[[str], None], like: Path) -> int:
    """Make a file that the user names, all at once; its size. `write` gets the path of an empty one beside it to fill.

    like: a file whose mode it gets. Raises FileExistsError where something has the name, and OSError.
    """
    real = destination(path)
    with parent_of(real) as at:
        temporary = temporary_name("new", real.name)
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN, 0o600, dir_fd=at)
        try:
            has_lock(handle)
            write(str(real.parent / temporary))
            os.fchmod(handle, stat.S_IMODE(like.stat().st_mode))
            take_name(temporary, real.name, at)
            return os.fstat(handle).st_size
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=at)
            os.close(handle)


def append(path: Path, line: bytes) -> None:
    """Write a line at the end of a file that is there and is the user's, and wait for the disk. Raises OSError."""
    real = destination(path)
    with parent_of(real) as at, Folder(real.parent, os.dup(at)) as folder:
        folder.append(real.name, line)


def cut(path: Path, size: int) -> None:
    """Leave the first bytes of such a file. Raises OSError."""
    real = destination(path)
    with parent_of(real) as at, Folder(real.parent, os.dup(at)) as folder:
        folder.cut(real.name, size)


@contextlib.contextmanager
def parent_of(real: Path) -> Iterator[int]:
    """The folder of a file, by descriptor: from the top of its project down through no link."""
    top = project_top(real.parent) or real.parent
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in real.parent.relative_to(top).parts:
            below = os.open(name, FOLDER, dir_fd=at)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _replace(real: Path, data: bytes) -> None:
    if is_special(real) or real.is_dir():
        with os.fdopen(os.open(real, os.O_WRONLY | os.O_CLOEXEC), "wb") as file:
            file.write(data)
        return
    with parent_of(real) as at:
        sweep_once(real.parent)
        before = _regular(real, at)
        with temporary_file(at, real.name, data, 0o600 if before else 0o666) as temporary:
            if before is not None:
                _as_before(temporary, at, before)
            os.replace(temporary, real.name, src_dir_fd=at, dst_dir_fd=at)


def _regular(real: Path, at: int) -> os.stat_result | None:
    """What is known of the file that is to be replaced, None where there is none. Raises OSError where it must stay."""
    try:
        status = os.stat(real.name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{real} is no regular file")
    if not os.access(real.name, os.W_OK, dir_fd=at):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return status


def _as_before(temporary: str, at: int, before: os.stat_result) -> None:
    handle = os.open(temporary, os.O_RDONLY | OPEN, dir_fd=at)
    try:
        with contextlib.suppress(PermissionError):  # only root may give a file away
            os.fchown(handle, before.st_uid, before.st_gid)
        os.fchmod(handle, stat.S_IMODE(before.st_mode))
    finally:
        os.close(handle)
