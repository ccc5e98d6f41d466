"""How fast the folder of the user is read."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "storage"
BLOCK = 4 << 20  # bytes
MOST = 256 << 20  # bytes that are written and read
SECONDS = 1.0  # of writing, and of reading
SLOW = 100e6  # bytes a second; a hard disk, or a network disk with others on it
FREE = 1 << 30


def look(place: Place) -> Iterator[MachineFact]:
    try:
        said = os.statvfs(place.folder)
        free = said.f_bavail * said.f_frsize
        advice = "checkpoints and caches need room" if free < FREE else ""
        yield MachineFact(AREA, "free here", free, "bytes", "warning" if advice else "ok", advice, "statvfs")
    except (OSError, AttributeError):
        yield MachineFact(AREA, "free here", None, state="unknown", basis="statvfs")
        return
    if place.has_bandwidth and free > 4 * MOST:
        yield from _read(place)


def _read(place: Place) -> Iterator[MachineFact]:
    try:
        with tempfile.NamedTemporaryFile(prefix=".perfaudit-disk-", dir=place.folder) as file:
            written = _write(file.fileno())
            speed = _speed(file.name, written)
    except OSError as error:
        yield MachineFact(AREA, "read here", None, state="unknown", advice=f"not timed: {error.strerror}")
        return
    if speed is None:
        yield MachineFact(
            AREA,
            "read here",
            None,
            state="unknown",
            advice="this file system reads through its cache alone",
            basis="O_DIRECT",
        )
        return
    slow = speed < SLOW
    advice = "copy data sets to a local disk, or pack small files into large ones" if slow else ""
    yield MachineFact(
        AREA, "read here", round(speed), "bytes/s", "warning" if slow else "ok", advice, "O_DIRECT, 4 MiB blocks"
    )


def _write(descriptor: int) -> int:
    """Bytes that were written in the time there is."""
    block = os.urandom(BLOCK)
    begin, written = time.monotonic(), 0
    while written < MOST and time.monotonic() - begin < SECONDS:
        written += os.write(descriptor, block)
    os.fsync(descriptor)
    return written


def _speed(name: str, size: int) -> float | None:
    """Bytes a second past the page cache; None where that is not allowed, since memory would answer."""
    import mmap

    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        return None
    try:
        descriptor = os.open(name, os.O_RDONLY | direct)
    except OSError:
        return None
    try:
        with mmap.mmap(-1, BLOCK) as buffer:  # aligned to a page, as direct reads ask for
            begin, read = time.monotonic(), 0
            while read + BLOCK <= size and time.monotonic() - begin < SECONDS:
                got = os.readv(descriptor, [buffer])
                if got <= 0:
                    break
                read += got
            taken = time.monotonic() - begin
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return read / taken if read and taken > 0 else None
