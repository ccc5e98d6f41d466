"""Files and folders opened by descriptor, never through a link; and what is refused instead."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from perfaudit.errors import refusal

OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in the place of a file must not make anybody wait
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(OSError):
    """A place in which perfaudit writes and deletes nothing; the message is whole and names the place."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.EPERM, message)


def reason(error: OSError) -> str:
    """Why something could not be written, in words for a sentence."""
    return str(error.strerror) if isinstance(error, Refused) else refusal(error)


def open_folder(name: str, path: Path, at: int) -> int:
    """A descriptor of the folder `name` in the folder `at`; path: what messages call it. Raises OSError, Refused for a link."""
    try:
        return os.open(name, FOLDER, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
            raise Refused(f"{path} is {_kind(name, at)}, not a folder of perfaudit's own") from error
        raise


def open_file(name: str, path: Path, flags: int, mode: int, at: int) -> int:
    """The same of a regular file, with the flags of `os.open` and the mode of one that is made."""
    try:
        handle = os.open(name, flags | OPEN, mode, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise Refused(f"{path} is {_kind(name, at)}, not a file of perfaudit's own") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Refused(f"{path} is no regular file")
    return handle


def _kind(name: str, at: int) -> str:
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            return "a link"
    return "something else"


def has_lock(handle: int) -> bool:
    """Whether the lock of a file is this process' now; also where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def append_only(handle: int) -> None:
    """Let everyone who holds this open file write at its end, wherever that is: another process may then empty it at any time.

    Without it a writer goes on at the place it had reached, and what was cut away comes back as zeros.
    """
    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_APPEND)


def to_disk(handle: int) -> None:
    """Wait until what was written is on disk; on a file system that cannot tell, do not."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
