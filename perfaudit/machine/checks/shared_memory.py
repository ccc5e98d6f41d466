"""/dev/shm, through which workers of a loader hand over their batches."""

from __future__ import annotations

import os
from collections.abc import Iterator

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "memory"
LITTLE = 1 << 30  # bytes; Docker gives 64 MiB, and PyTorch's documentation asks for --ipc=host or a larger --shm-size


def look(place: Place) -> Iterator[MachineFact]:
    folder = place.root / "dev/shm"
    try:
        said = os.statvfs(folder)
    except (OSError, AttributeError):
        yield MachineFact(AREA, "/dev/shm", None, state="unknown", basis="statvfs")
        return
    size, free = said.f_blocks * said.f_frsize, said.f_bavail * said.f_frsize
    state = "warning" if free < LITTLE else "ok"
    advice = (
        "workers of a loader hand batches over through it: `docker run --ipc=host` or `--shm-size=8g`, else they end "
        "with a bus error"
        if free < LITTLE
        else ""
    )
    yield MachineFact(AREA, "/dev/shm, size", size, "bytes", basis="statvfs")
    yield MachineFact(AREA, "/dev/shm, free", free, "bytes", state, advice, "statvfs")  # type: ignore[arg-type]  # one of two
