"""Limits of this process (`ulimit`): open files, processes, memory that may be locked."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "memory"
# What a training with workers needs at least: each batch in flight holds a file descriptor for each of its tensors.
LEAST = {"RLIMIT_NOFILE": 4096, "RLIMIT_NPROC": 512}
_SAID = {
    "RLIMIT_NOFILE": ("open files", '`ulimit -n 65536`, else workers fail with "too many open files"'),
    "RLIMIT_NPROC": ("processes", "`ulimit -u unlimited`: workers and threads count"),
}


def look(place: Place) -> Iterator[MachineFact]:
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    for name, least in LEAST.items():
        limit = resource.getrlimit(getattr(resource, name))[0]
        words, advice = _SAID[name]
        low = limit != resource.RLIM_INFINITY and limit < least
        value = "unlimited" if limit == resource.RLIM_INFINITY else limit
        yield MachineFact(
            AREA, f"limit of {words}", value, "", "warning" if low else "ok", advice if low else "", "getrlimit"
        )
    # What RDMA may pin (NCCL over InfiniBand). Page-locked memory of CUDA does not count, so no value of it is wrong here.
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    is_limited = locked != resource.RLIM_INFINITY
    unit = "bytes" if is_limited else ""
    yield MachineFact(AREA, "limit of locked memory", locked if is_limited else "unlimited", unit, basis="getrlimit")
