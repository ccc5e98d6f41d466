"""How fast the folder of the user is read."""

from __future__ import annotations

import mmap
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
        with tempfile.TemporaryFile(dir=place.folder, buffering=0) as file:  # without a name
            speed = _speed(file.fileno(), _write(file.fileno()))
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


def _speed(descriptor: int, size: int) -> float | None:
    """Bytes a second past the page cache; None where that is not allowed, since memory would answer."""
    try:
        import fcntl

        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_DIRECT
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
        with mmap.mmap(-1, BLOCK) as buffer:  # aligned to a page, as direct reads ask for
            begin, read = time.monotonic(), 0
            while read + BLOCK <= size and time.monotonic() - begin < SECONDS:
                if not (got := os.preadv(descriptor, [buffer], read)):
                    break
                read += got
            taken = time.monotonic() - begin
    except (OSError, AttributeError, ModuleNotFoundError):  # another system, or a file system in memory
        return None
    return read / taken if read and taken > 0 else None
