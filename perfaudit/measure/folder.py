"""The folder in which perfaudit keeps what it measured, `.perfaudit` in the working directory, and who measures there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.files import Folder, own_outputs

FOLDER = own_outputs.FOLDER


def own_folder(folder: Path, *below: str, make: bool = False) -> Folder:
    """`.perfaudit` in a folder, or a folder in that; close it. Raises OSError, `files.Refused` for a link or what is another
    user's.

    make: it is made if need be, with a `.gitignore` that keeps it out of commits.
    """
    own = Folder.open_at(folder, FOLDER, make=make)
    if make:
        with contextlib.suppress(OSError):
            if own.status(".gitignore") is None:
                own.create(".gitignore", b"*\n")
    for name in below:
        with own:
            own = own.below(name, make)
    return own


@contextlib.contextmanager
def measuring(folder: Path) -> Iterator[None]:
    """Hold this folder's measuring to this process; the system gives it back when the process dies.

    Raises UserError while another process has it. Where no lock can be made (a read-only folder) there is none.
    """
    lock = _lock(folder)
    try:
        yield
    finally:
        if lock is not None:
            _sign(lock, "")
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """An open file that holds the lock, None where none can be made."""
    try:
        with own_folder(folder, make=True) as own:
            lock = own.open("measuring.lock", os.O_RDWR | os.O_CREAT)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _holder(lock)
        os.close(lock)
        raise UserError(
            f"another perfaudit{holder} measures in this folder; two at once would measure each other"
        ) from error
    except OSError:  # a file system without locks
        os.close(lock)
        return None
    _sign(lock, json.dumps({"pid": os.getpid(), "at": time.time()}))
    return lock


def _sign(lock: int, text: str) -> None:
    """Write who holds the lock into it; it is held all the same where that fails."""
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, text.encode(), 0)


def _holder(lock: int) -> str:
    try:
        holder = json.loads(os.pread(lock, 1000, 0))
        pid, began = int(holder["pid"]), time.localtime(holder["at"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return ""  # it holds the lock and has not signed yet
    today = began[:3] == time.localtime()[:3]
    return f" (pid {pid}, since {time.strftime('%H:%M' if today else '%Y-%m-%d %H:%M', began)})"
