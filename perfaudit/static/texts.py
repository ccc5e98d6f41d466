"""What a file holds: its bytes on disk, or those that somebody means to write there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

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


def bytes_of(path: str | Path) -> bytes:
    """The bytes of a file as the scanner sees it. Raises OSError."""
    meant = _meant.get()
    return meant[real] if meant and (real := os.path.realpath(path)) in meant else Path(path).read_bytes()


def size_of(path: str | Path) -> int:
    """The number of these bytes, told without reading the file. Raises OSError."""
    meant = _meant.get()
    return len(meant[real]) if meant and (real := os.path.realpath(path)) in meant else Path(path).stat().st_size


def _encoding(path: str) -> str:
    from perfaudit.static.source import Unreadable, decoded

    try:
        return decoded(Path(path).read_bytes())[1]
    except (OSError, Unreadable):
        return "utf-8"
