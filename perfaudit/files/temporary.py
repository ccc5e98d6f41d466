"""Temporary files beside what they become, with names by which the next run knows what a killed process left of them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from perfaudit.files.descriptors import OPEN, has_lock, to_disk

LARGEST_SOURCE = 64 << 20  # bytes; what is patched is never larger (`reading.MAX_FILE_BYTES`)
_PIECE = 1 << 20  # bytes read at once
_NAME = re.compile(r"\.(?P<of>.*)\.perfaudit-(?P<kind>new|old)-(?P<word>[0-9a-f]{12})-(?P<sign>[0-9a-f]{12})")
_LONGEST = 255 - len(".") - len(".perfaudit-new-") - 2 * 12 - 1  # bytes of a file's name that fit into that of ours


def temporary_name(kind: str, of: str) -> str:
    """A name that only perfaudit gives: it holds a word and what that word and the file's name come to."""
    word = os.urandom(6).hex()
    return f".{_shorten(of)}.perfaudit-{kind}-{word}-{_sign(kind, _shorten(of), word)}"


def _shorten(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_LONGEST])


def _sign(kind: str, of: str, word: str) -> str:
    return hashlib.sha256(f"perfaudit {kind} {word} {of}".encode("utf-8", "surrogateescape")).hexdigest()[:12]


@contextlib.contextmanager
def temporary_file(at: int, name: str, data: bytes, mode: int, sync: bool = True) -> Iterator[str]:
    """The name of a new file beside `name` that holds the data; gone in the end unless it was given another name.

    It is locked as long as this process lives, so that another one can tell that it was left behind.
    """
    temporary = temporary_name("new", name)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN, mode, dir_fd=at)
    try:
        has_lock(handle)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        if sync:
            to_disk(handle)
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=at)
        os.close(handle)


def take_name(temporary: str, name: str, at: int) -> None:
    """Give a finished file a name that nothing has; it may keep its own. Raises FileExistsError."""
    try:
        os.link(temporary, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: take the name first, then replace what is ours
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN, dir_fd=at))
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)


def sweep(folder: Path, kinds: tuple[str, ...] = ("new", "old")) -> list[str]:
    """Delete the temporary files that a killed perfaudit left in a folder; sentences on what it kept, and where.

    Deleted are regular files of this user whose name only perfaudit gives and that no process holds. What a file held before
    a patch that was cut off gets a name that can be seen, where the file no longer holds it. Never raises OSError.
    """
    said: list[str] = []
    with contextlib.suppress(OSError):
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(at) as entries:
                found = [match for entry in entries if (match := _NAME.fullmatch(entry.name))]
            for match in found:
                if match["kind"] in kinds and match["sign"] == _sign(match["kind"], match["of"], match["word"]):
                    with contextlib.suppress(OSError):
                        said += _sweep_one(at, folder, match)
        finally:
            os.close(at)
    return said


def _sweep_one(at: int, folder: Path, match: re.Match[str]) -> list[str]:
    name, of = match[0], match["of"]
    handle = os.open(name, os.O_RDONLY | OPEN, dir_fd=at)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return []
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where a process holds it, or nobody can tell
        if match["kind"] == "old" and not _holds_the_same(at, of, handle):
            kept = f"{of}.before-perfaudit-{match['word']}"
            os.link(name, kept, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
            os.unlink(name, dir_fd=at)
            return [f"{folder / of}: a patch was cut off; what the file held before is kept as {folder / kept}"]
        os.unlink(name, dir_fd=at)
        return []
    finally:
        os.close(handle)


def _holds_the_same(at: int, name: str, other: int) -> bool:
    try:
        handle = os.open(name, os.O_RDONLY | OPEN, dir_fd=at)
    except OSError:
        return False
    with os.fdopen(handle, "rb") as one, os.fdopen(os.dup(other), "rb") as two:
        status, size = os.fstat(one.fileno()), os.fstat(two.fileno()).st_size
        if not stat.S_ISREG(status.st_mode) or status.st_size != size or size > LARGEST_SOURCE:
            return False
        while part := one.read(_PIECE):
            if part != two.read(_PIECE):
                return False
        return True


_swept: set[Path] = set()


def sweep_once(folder: Path) -> None:
    """Delete what killed processes left of files they were writing; what a file held before is for `sweep` to tell of."""
    if folder not in _swept:
        _swept.add(folder)
        sweep(folder, ("new",))
