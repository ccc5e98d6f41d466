"""What the C library does with memory that a step frees: back to the system, or kept for the next step. glibc on Linux only.

By itself glibc maps large blocks from the system, and gives back what is free at the end of its heap as soon as that exceeds
twice the largest mapped block that was freed so far, 64 MiB at most (`man mallopt`: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD). A
training frees its activations at the end of each step, and asks for them again in the next one. Each page of 4 KiB is then filled
with zeros by the system anew, in a page fault.
"""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import sys
from typing import Any

# https://man7.org/linux/man-pages/man3/mallopt.3.html, by their numbers in malloc.h.
TRIM_THRESHOLD, MMAP_MAX = -1, -4
# A block that glibc maps unless it is told otherwise: its own threshold never exceeds 32 MiB on 64 bits.
LARGE = 64 << 20
VARIABLES = (
    "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES",
)  # fmt: skip


class _Usage(ctypes.Structure):
    """What `mallinfo` returns: ten numbers, of which `hblks` is how many blocks are mapped."""

    _fields_ = tuple((name, ctypes.c_int) for name in ("arena", "ordblks", "smblks", "hblks", *"abcdef"))


class _LongUsage(ctypes.Structure):
    """The same of `mallinfo2` (glibc 2.33)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", *"abcdef"))


def is_glibc() -> bool:
    """Whether `malloc` of this process is glibc's, and no other allocator's that was loaded before it."""
    return _library() is not None


def keeps_memory() -> bool:
    """Whether a large block comes from the heap: glibc was told to map none. False where the allocator is another one."""
    library = _library()
    if library is None:
        return False
    before = _mapped_blocks(library)
    block = library.malloc(LARGE)  # not written to, so that it takes no memory
    mapped = _mapped_blocks(library) > before
    library.free(block)
    return bool(block) and not mapped


def keep_memory() -> None:
    """Have glibc map no blocks, and give back nothing, from now on until this process ends: there is no way back.

    What its thresholds were cannot be asked, and once set they no longer follow what is freed.
    """
    library = _library()
    if library is not None:
        library.mallopt(MMAP_MAX, 0)
        library.mallopt(TRIM_THRESHOLD, -1)


def variable_set() -> str:
    """The variable of the environment that says how glibc keeps memory, "" for none."""
    return next((name for name in VARIABLES if os.environ.get(name)), "")


def page_faults() -> int:
    """How often this process' threads have met a page that the system had to provide, without reading a disk, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@functools.cache
def _library() -> Any:  # a library of ctypes
    """The library of C where that is glibc and `malloc` is its own; None elsewhere."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    if not all(hasattr(library, name) for name in ("gnu_get_libc_version", "mallopt", "mallinfo", "dladdr")):
        return None
    if not _file_of(library, library.malloc).startswith("libc"):
        return None
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    library.mallopt.restype, library.mallopt.argtypes = ctypes.c_int, [ctypes.c_int, ctypes.c_int]
    return library


class _Place(ctypes.Structure):
    """What `dladdr` tells of an address."""

    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("at", ctypes.c_void_p),
    )  # fmt: skip


def _file_of(library: Any, function: Any) -> str:
    """The name of the file that a function is in, without its folder; "" where that is not known."""
    place = _Place()
    found = library.dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(place))
    return os.path.basename(os.fsdecode(place.file)) if found and place.file else ""  # noqa: PTH119


def _mapped_blocks(library: Any) -> int:
    """How many blocks of this process are mapped from the system now."""
    asked = library.mallinfo2 if hasattr(library, "mallinfo2") else library.mallinfo
    asked.restype = _LongUsage if hasattr(library, "mallinfo2") else _Usage
    return int(asked().hblks)
