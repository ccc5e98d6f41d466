"""Folders that take what scripts write: made for one run, deleted behind it, or by a later run where this one was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfaudit.script.request import Script

PREFIX = "perfaudit_scratch_"  # of folders that are locked as long as their run lives
_NAME = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")  # as mkdtemp makes it; a folder that a user has named is none of them
TRIES, TRY_AGAIN_SECONDS = 5, 0.05  # of deleting a folder, into which another process may still write
JUST_MADE = 60.0  # seconds, within which a folder that is not locked may be one that its run is about to lock


@contextlib.contextmanager
def own_scratch(root: Path) -> Iterator[Path]:
    """A new folder in `root`, deleted in the end; what runs that were killed have left there is deleted before."""
    sweep(root)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    lock = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the folder stays if this run is killed
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        remove_scratch(folder)
        os.close(lock)


def sweep(root: Path) -> None:
    """Delete the folders of this user's runs that were killed: nobody holds their lock."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_left(Path(entry.path))


def _remove_if_left(folder: Path) -> None:
    """Delete a folder, unless it is another user's, a link, just made, or locked by a run that lives."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        about = os.fstat(lock)
        is_ours = about.st_uid == os.geteuid() and not stat.S_IMODE(about.st_mode) & 0o077  # as mkdtemp makes it
        if is_ours and time.time() - about.st_mtime > JUST_MADE:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_scratch(folder)
    finally:
        os.close(lock)


def remove_scratch(folder: Path) -> None:
    """Delete a folder with what overlays have left in it.

    Another process may still write into it, so deleting is tried a few times.
    """
    for work in folder.rglob("work"):  # the kernel makes them unreadable
        if not work.is_symlink():  # one of the script's own may lead anywhere
            with contextlib.suppress(OSError):
                work.chmod(0o700)
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(TRY_AGAIN_SECONDS)


def scratch_root(script: Script, beside: Sequence[Path] = ()) -> Path:
    """Where a scratch folder is best made: on the disk, beside no file of the script's, nor these folders.

    What lies in the same folder of the root as the scratch is kept in memory, see `overlay_mounts.keep_away`.
    """
    usual, other = Path(tempfile.gettempdir()).resolve(), Path("/var/tmp")
    near = {place.resolve().parts[:2] for place in (Path.cwd(), Path(script.name), *beside)}
    is_better = usual.parts[:2] in near and other.parts[:2] not in near and os.access(other, os.W_OK)
    return other if is_better else usual
