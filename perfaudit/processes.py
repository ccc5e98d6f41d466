"""The processes that a process started, whoever started them in turn, and those that have started it."""

from __future__ import annotations

import contextlib
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Every process that descends from one, on Linux; a child that made a session of its own survives `killpg`."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def started_at(pid: int) -> int | None:
    """When a process was started, in ticks since the machine was: with its number, its identity. None where it is gone; Linux."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])  # a dead one that nobody has waited for is gone, too
    return None


def command_name(pid: int) -> str:
    """What a process runs, by the name of its file, cut to 15 characters; "" where that is not told. Linux."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    return ""


def first_ancestor_without(pid: int, variable: str) -> int | None:
    """The nearest ancestor of a process that was started without a variable in its environment; None where that is not told."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            names = (entry.partition(b"=")[0] for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
            if variable.encode() not in names:
                return pid
    return None
