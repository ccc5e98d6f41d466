"""What source files held before a patch, put back when not all of them can be written."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from perfaudit.files.descriptors import OPEN, has_lock
from perfaudit.files.places import source_place
from perfaudit.files.temporary import temporary_name
from perfaudit.files.user_files import parent_of
from perfaudit.records import record


@record(frozen=True, slots=True)
class Kept:
    """What a source file held, under a second name beside it; `handle` holds the lock that says so."""

    real: Path
    path: Path
    handle: int


def keep(path: Path) -> Kept:
    """Give what a source file holds a second name beside it, until `forget`: it comes back by renaming, which needs no
    room on a full disk. Raises OSError."""
    real = source_place(path)
    with parent_of(real) as at:
        name = temporary_name("old", real.name)
        try:
            os.link(real.name, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
        except OSError:  # a file system without links
            _copy(at, real.name, name)
        handle = os.open(name, os.O_RDONLY | OPEN, dir_fd=at)
    has_lock(handle)
    return Kept(real, real.parent / name, handle)


def put_back(kept: Kept) -> None:
    """Give a file what it held. Raises OSError; then that is still there."""
    with parent_of(kept.real) as at:
        os.replace(kept.path.name, kept.real.name, src_dir_fd=at, dst_dir_fd=at)


def forget(kept: Kept) -> None:
    """Take the second name away, where it is still there."""
    with contextlib.suppress(OSError), parent_of(kept.real) as at:
        os.unlink(kept.path.name, dir_fd=at)
    os.close(kept.handle)


def _copy(at: int, name: str, to: str) -> None:
    with os.fdopen(os.open(name, os.O_RDONLY | OPEN, dir_fd=at), "rb") as source:
        status = os.fstat(source.fileno())
        target = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN, 0o600, dir_fd=at)
        with os.fdopen(target, "wb") as file:
            import shutil  # as in `private`

            shutil.copyfileobj(source, file)
            os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
