"""Cores and memory that this process may use: of the machine, cut by the control group that it is in (version 1 or 2)."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/")
_NO_LIMIT = 1 << 60  # bytes; version 1 says "none" by a number near the largest
# The files of version 2, then those of version 1, below the root of the file system.
_LIMIT = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")
_USED = ("sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory/memory.usage_in_bytes")


def usable_cores(root: Path = ROOT) -> int:
    """Cores this process may use: the affinity mask, cut by the control group's quota (rounded up)."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    quota = core_quota(root)
    return max(1, min(cores, -int(-quota // 1))) if quota else cores


def core_quota(root: Path = ROOT) -> float | None:
    """Cores that the control group gives; None without a limit."""
    both = (text_of(root / "sys/fs/cgroup/cpu.max") or "").split()
    if len(both) != 2:
        folder = root / "sys/fs/cgroup/cpu"
        both = [(text_of(folder / f"cpu.cfs_{name}_us") or "").strip() for name in ("quota", "period")]
    try:
        limit, period = (int(word) for word in both)
    except ValueError:  # "max", or no such file
        return None
    return limit / period if limit > 0 and period > 0 else None


def physical_cores(root: Path = ROOT) -> int:
    """Cores of silicon this process may use: hyper-threads of one core count once. All usable ones where nothing says."""
    cores = usable_cores(root)
    try:
        numbers = os.sched_getaffinity(0)
    except AttributeError:
        return cores
    siblings = {text_of(root / f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list") for n in numbers}
    return cores if None in siblings else min(cores, len(siblings)) or cores


def memory_limit(root: Path = ROOT) -> int | None:
    """Bytes that the control group gives; None without a limit."""
    limit = _first_number(root, _LIMIT)
    return limit if limit is not None and limit < _NO_LIMIT else None


def free_memory(root: Path = ROOT) -> int:
    """Bytes a new process can take without swapping: MemAvailable, cut by what the control group leaves; 0 if unknown."""
    available = memory_line("MemAvailable", root)
    if available is None:
        available = total_memory() // 2
    limit, used = memory_limit(root), _first_number(root, _USED)
    return available if limit is None or used is None else max(0, min(available, limit - used))


def memory_line(name: str, root: Path = ROOT) -> int | None:
    """Bytes that a line of /proc/meminfo tells; None where there is none."""
    for line in (text_of(root / "proc/meminfo") or "").splitlines():
        if line.startswith(f"{name}:"):
            try:
                return int(line.split()[1]) * 1024
            except (IndexError, ValueError):
                return None
    return None


def total_memory() -> int:
    """Bytes of memory of the machine; 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def load_average() -> float | None:
    """Processes that wanted a core over the last minute; None where the system does not say."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


def text_of(path: Path) -> str | None:
    """What is in a small file of the system; None where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):
        return None


def _first_number(root: Path, names: tuple[str, ...]) -> int | None:
    for name in names:
        text = text_of(root / name)
        if text is not None:
            return int(text) if text.strip().isdigit() else None
    return None
