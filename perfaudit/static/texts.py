"""What a file holds: its bytes on disk, or those that somebody means to write there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

from perfaudit.reading import MAX_FILE_BYTES, TooLarge, read_bytes

_NOTHING: Mapping[str, bytes] = MappingProxyType({})
_meant = ContextVar("texts meant to be written", default=_NOTHING)


@contextmanager
def patched(texts: Mapping[str, str]) -> Iterator[None]:
    """Inside, files at these paths read as if they held these texts, in the encoding that they have on disk."""
    meant = {os.path.realpath(path): text.encode(_encoding(path)) for path, text in texts.items()}
    token = _meant.set({**_meant.get(), **meant})
    try:
        yield
    finally:
        _meant.reset(token)


def bytes_of(path: str | Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a file as the scanner sees it. Raises OSError, for one above the limit as well (`reading.TooLarge`)."""
    meant = _meant.get()
    if not meant or (real := os.path.realpath(path)) not in meant:
        return read_bytes(path, limit)
    if len(meant[real]) > limit:
        raise TooLarge(errno.EFBIG, f"larger than {limit:,} bytes")
    return meant[real]


def _encoding(path: str) -> str:
    from perfaudit.static.source import Unreadable, decoded

    try:
        return decoded(read_bytes(path, MAX_FILE_BYTES))[1]
    except (OSError, Unreadable):
        return "utf-8"
