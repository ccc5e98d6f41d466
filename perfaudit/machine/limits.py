"""Cores and memory that this process may use: of the machine, cut by the control group that it is in (version 1 or 2)."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/")
_NO_LIMIT = 1 << 60  # bytes; version 1 says "none" by a number near the largest
# The files of version 2, and those of version 1, in the folder of a control group.
_MEMORY = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))


def usable_cores(root: Path = ROOT) -> int:
    """Cores this process may use: the affinity mask, cut by the control group's quota (rounded up)."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    quota = core_quota(root)
    return max(1, min(cores, -int(-quota // 1))) if quota else cores


def core_quota(root: Path = ROOT) -> float | None:
    """Cores that the control groups give, the one of this process and those around it; None without a limit."""
    quotas = []
    for folder in _groups(root, "cpu"):
        both = (text_of(folder / "cpu.max") or "").split()
        if len(both) != 2:
            both = [(text_of(folder / f"cpu.cfs_{name}_us") or "").strip() for name in ("quota", "period")]
        if all(word.isdigit() for word in both) and int(both[0]) > 0 and int(both[1]) > 0:  # not "max", and not -1
            quotas.append(int(both[0]) / int(both[1]))
    return min(quotas, default=None)


def _groups(root: Path, controller: str) -> list[Path]:
    """Folders of the control group of this process and of those around it, of version 2, and of a controller of version 1."""
    found = []
    for line in (text_of(root / "proc/self/cgroup") or "0::/\n0:cpu,memory:/").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        top = root / "sys/fs/cgroup" / (controller if controller in names.split(",") else "")
        if names and controller not in names.split(","):
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        found += [top.joinpath(*parts[:length]) for length in range(len(parts), -1, -1)]
    return [*found, root / "sys/fs/cgroup", root / "sys/fs/cgroup" / controller]


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
    """Bytes that the control groups give, the one of this process and those around it; None without a limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def free_memory(root: Path = ROOT) -> int:
    """Bytes a new process can take without swapping: MemAvailable, cut by what the control group leaves; 0 if unknown."""
    available = memory_line("MemAvailable", root)
    if available is None:
        available = total_memory() // 2
    return max(0, min([available, *(limit - used for limit, used in _memory(root) if used is not None)]))


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


def _memory(root: Path) -> list[tuple[int, int | None]]:
    """Limit and use of each control group that has a limit, in bytes."""
    found = []
    for folder in _groups(root, "memory"):
        for limit_name, used_name in _MEMORY:
            limit, used = ((text_of(folder / name) or "").strip() for name in (limit_name, used_name))
            if limit.isdigit() and int(limit) < _NO_LIMIT:
                found.append((int(limit), int(used) if used.isdigit() else None))
    return found
