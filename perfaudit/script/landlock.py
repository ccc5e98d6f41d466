"""The kernel refuses this process, and those it starts, to write anywhere but in some folders (Linux 5.13 and newer). Child only.

Needs no rights. For machines that allow no overlay mounts: what Python's redirected writes do not reach fails instead of
writing. See https://docs.kernel.org/userspace-api/landlock.html, whose numbers these are.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on all architectures
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_BELOW_PATH = 1  # LANDLOCK_RULE_PATH_BENEATH
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
# Writing to files, removing, and making entries of every kind; moving between folders since version 2, truncating since 3.
_WRITES = (1 << 1) | sum(1 << bit for bit in range(4, 13))
_MOVE, _TRUNCATE = 1 << 13, 1 << 14


class _Below(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def write_only_below(folders: Iterable[str]) -> bool:
    """Whether the kernel refuses writes elsewhere from now on; False where it cannot, and nothing has changed."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE, None, 0, _VERSION)
    if version < 1:
        return False
    handled = _WRITES | (_MOVE if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = libc.syscall(_CREATE, ctypes.byref(ctypes.c_uint64(handled)), 8, 0)
    if rules < 0:
        return False
    try:
        for folder in folders:
            with contextlib.suppress(OSError):
                descriptor = os.open(folder, os.O_PATH)
                below = _Below(handled, descriptor)
                libc.syscall(_ADD, rules, _BELOW_PATH, ctypes.byref(below), 0)
                os.close(descriptor)
        return bool(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and libc.syscall(_RESTRICT, rules, 0) == 0)
    finally:
        os.close(rules)
