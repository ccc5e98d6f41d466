"""A folder of perfaudit's own, in which files are read, written and locked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from perfaudit.files.descriptors import Refused, has_lock, open_file, open_folder, to_disk
from perfaudit.files.temporary import take_name, temporary_file

LOCK_SECONDS = 10.0  # for another process that is writing; it needs milliseconds
LOCK_PAUSE = 0.02  # seconds between two looks at a lock


class Folder:
    """A folder of perfaudit's own, held open: what is done in it happens there, whatever its path leads to meanwhile.

    Names are of files directly in it. All methods raise OSError, `Refused` among them: for what is no regular file, has a
    second name elsewhere, or belongs to another user.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def open_at(cls, base: Path, *names: str, make: bool = False, mode: int = 0o777) -> Folder:
        """The folder `base/names…`, of which `base` may be reached through links and belong to anybody, the rest not.

        make: what is missing is made, with this mode. Raises OSError, FileNotFoundError among them.
        """
        folder = cls(base, os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for name in names:
            with folder:
                folder = folder.below(name, make, mode)
        return folder

    def below(self, name: str, make: bool = False, mode: int = 0o777) -> Folder:
        """A folder in this one."""
        path = self.path / name
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=self._handle)
        handle = open_folder(name, path, self._handle)
        if os.fstat(handle).st_uid != os.geteuid():
            os.close(handle)
            raise Refused(f"{path} belongs to another user")
        return Folder(path, handle)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    @property
    def mode(self) -> int:
        return stat.S_IMODE(os.fstat(self._handle).st_mode)

    def hold(self) -> bool:
        """Hold a lock of the folder, as others may, until it is closed; nothing where the file system has no locks.

        False where another process has it for itself: whoever deletes a folder that was left.
        """
        try:
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def is_at_its_path(self) -> bool:
        """Whether its path still leads to it: it may have been deleted, and made anew."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._handle), self.path.stat())
        return False

    def close_to_others(self) -> None:
        """Take from everybody but this user what they may do in it."""
        if self.mode & 0o077:
            os.fchmod(self._handle, 0o700)

    def names(self) -> list[str]:
        """Of regular files in it, in order."""
        with os.scandir(self._handle) as entries:
            return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))

    def status(self, name: str) -> os.stat_result | None:
        """Of what has this name, a link not followed; None where nothing has."""
        try:
            return os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def read(self, name: str, private: bool = False) -> bytes:
        """What a file holds. private: only where nobody else may read it or belongs to it."""
        with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
            status = os.fstat(file.fileno())
            if private and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
                raise Refused(f"{self.path / name} is open to other users")
            return file.read()

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of a file; of one that is to be written only where it is this user's and has no other name."""
        handle = open_file(name, self.path / name, flags, mode, self._handle)
        status = os.fstat(handle)
        if flags & (os.O_WRONLY | os.O_RDWR) and (status.st_nlink > 1 or status.st_uid != os.geteuid()):
            os.close(handle)
            raise Refused(f"{self.path / name} has another name elsewhere, or belongs to another user")
        return handle

    def append(self, name: str, line: bytes) -> None:
        """Write a line at the end and wait for the disk; a line that does not fit leaves the file as it was."""
        _append(self.open(name, os.O_WRONLY | os.O_APPEND), line)

    def cut(self, name: str, size: int) -> None:
        """Leave the first bytes of a file."""
        handle = self.open(name, os.O_WRONLY)
        try:
            os.ftruncate(handle, size)
        finally:
            os.close(handle)

    def write(self, name: str, data: bytes, mode: int = 0o666, sync: bool = True) -> None:
        """Give a file this content, all or nothing. sync: wait for the disk."""
        if (status := self.status(name)) is not None and not stat.S_ISREG(status.st_mode):
            raise Refused(f"{self.path / name} is no regular file")
        with temporary_file(self._handle, name, data, mode, sync) as temporary:
            os.replace(temporary, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def create(self, name: str, data: bytes = b"", mode: int = 0o666) -> None:
        """Make a file with this content, all at once. Raises FileExistsError where something has the name, a link too."""
        with temporary_file(self._handle, name, data, mode) as temporary:
            take_name(temporary, name, self._handle)

    def move(self, name: str, to: str) -> None:
        """Give a file another name in the folder. Raises FileExistsError where something has it."""
        take_name(name, to, self._handle)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._handle)

    def remove(self, name: str) -> None:
        """Delete a regular file of this user; what is none, or is gone, stays as it is."""
        status = self.status(name)
        if status is not None and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._handle)

    @contextlib.contextmanager
    def lock(self, name: str, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
        """Hold a lock of this name inside; on a file system without locks nothing is held. Raises TimeoutError."""
        handle = self.open(name, os.O_RDWR | os.O_CREAT)
        try:
            until = clock() + LOCK_SECONDS
            while not has_lock(handle):
                if clock() > until:
                    raise TimeoutError(errno.ETIMEDOUT, f"another process holds {name}")
                time.sleep(LOCK_PAUSE)
            yield
        finally:
            os.close(handle)


def _append(handle: int, line: bytes) -> None:
    try:
        before = os.fstat(handle).st_size
        try:
            rest = line
            while rest:
                rest = rest[os.write(handle, rest) :]
            to_disk(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, before)
            raise
    finally:
        os.close(handle)
