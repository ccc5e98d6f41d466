"""Files that somebody else wrote, read within bounds: regular files only, so many bytes at most, TOML and JSON of usual shape."""

from __future__ import annotations

import errno
import functools
import os
import reprlib
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_SETTINGS_BYTES = 1 << 20  # a pyproject.toml, an ignore file, a rule file: people write them by hand
MAX_FILE_BYTES = 64 << 20  # of any file with code; a notebook comes near, most of it is its pictures
MAX_RECORD_BYTES = 256 << 20  # a report or a baseline, which perfaudit itself writes: 2,000 findings took 2 MB
MAX_JSON_PARTS = 2_000_000  # objects and lists of a JSON text; 256 MiB of empty lists take 6 GB as Python has them
MAX_DOTS_SQUARED = 50_000_000  # tomllib takes the square of a key's parts: about a second, 7,000 in one key
_PIECE = 1 << 20
_SMALL = 64 << 10  # bytes of which a digest takes 0.3 ms; OpenSSL is five times as fast, and takes 3 ms to load
_QUIET = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)


class TooLarge(OSError):
    """A file that holds more than may be read."""


def read_bytes(path: str | Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """What a regular file holds. Raises OSError: for a pipe, a device, a socket or a folder, TooLarge above the limit.

    Never waits for a writer and never reads without an end. The kind is asked before opening, because opening a device
    can do something, and again of what was opened, because it may be another file by then; the limit counts what is
    read, because a file may grow, and files in /proc say that they hold nothing.
    """
    _refuse_special(os.stat(path))  # noqa: PTH116  # a third faster than by way of a Path
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | _QUIET)
    try:
        status = os.fstat(handle)
        _refuse_special(status)
        parts, room = [], limit + 1
        if status.st_size > limit:
            room = 0
        piece = status.st_size + 1 if status.st_size else _PIECE  # one byte more: a second read finds the end
        while room > 0 and (part := os.read(handle, min(room, piece))):
            parts.append(part)
            room -= len(part)
    finally:
        os.close(handle)
    if room <= 0:
        raise TooLarge(errno.EFBIG, f"larger than {limit:,} bytes")
    return b"".join(parts)


def first_bytes(path: str | Path, size: int) -> bytes:
    """The first so many bytes of a file that is our own, or fewer where it has fewer."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | _QUIET)
    try:
        return os.read(handle, size)
    finally:
        os.close(handle)


def _refuse_special(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


def digest(data: bytes) -> str:
    """What a file or text is known by: SHA-256 of its bytes, in hexadecimal.

    Of few bytes it is computed by Python itself, as `random` has it: `hashlib` loads OpenSSL.
    """
    if len(data) <= _SMALL and "hashlib" not in sys.modules:
        return str(_own_sha256()(data).hexdigest())
    import hashlib

    return hashlib.sha256(data).hexdigest()


@functools.cache
def _own_sha256() -> Callable[[bytes], Any]:  # Any: a digest
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256  # type: ignore[import-not-found]  # typeshed has none
    except ImportError:  # another Python than CPython
        from hashlib import sha256
    made: Callable[[bytes], Any] = sha256
    return made


def toml_of(text: str) -> dict[str, Any]:  # Any: raw TOML
    """The tables of a TOML text. Raises ValueError, also for what is nested too deeply or has numbers that are too long."""
    if sum(line.count(".") ** 2 for line in text.split("\n")) > MAX_DOTS_SQUARED:
        raise ValueError("dotted keys of too many parts")
    import tomllib  # which takes as long to import as a file of code to parse

    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def value_in_words(value: object) -> str:
    """A value that somebody wrote, for a message: cut where it is long, deep, or a number that Python does not print."""
    try:
        return reprlib.repr(value)
    except (ValueError, RecursionError):
        return f"{type(value).__name__} of too many digits"


def json_of(data: str | bytes) -> Any:  # Any: any JSON value
    """The value in a JSON text. Raises ValueError, also for what is nested too deeply or has too many parts."""
    import json

    check_json_parts(data)
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def check_json_parts(data: str | bytes) -> None:
    """Raises ValueError for a JSON text of more than MAX_JSON_PARTS objects and lists; brackets in its strings count too."""
    parts = data.count(b"[") + data.count(b"{") if isinstance(data, bytes) else data.count("[") + data.count("{")
    if parts > MAX_JSON_PARTS:
        raise ValueError(f"more than {MAX_JSON_PARTS:,} objects and lists")
