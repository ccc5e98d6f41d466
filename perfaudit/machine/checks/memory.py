"""Memory that this process may take, and what is swapped out."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.machine.limits import free_memory, memory_limit, memory_line, total_memory
from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "memory"
LITTLE = 2 << 30  # bytes; importing torch and a few workers take about so much


def look(place: Place) -> Iterator[MachineFact]:
    total, free, limit = total_memory(), free_memory(place.root), memory_limit(place.root)
    if limit is not None and limit < total:
        yield MachineFact(
            AREA, "limit", limit, "bytes", "note", "a control group ends the process that takes more", "cgroup"
        )
    little = 0 < free < LITTLE
    advice = "a training with workers may be ended for want of memory" if little else ""
    yield MachineFact(
        AREA, "free", free or None, "bytes", "warning" if little else "ok", advice, "/proc/meminfo, cgroup"
    )
    swap_total, swap_free = memory_line("SwapTotal", place.root), memory_line("SwapFree", place.root)
    if swap_total and swap_free is not None:
        used = swap_total - swap_free
        much = used > 0.01 * total
        advice = "memory is swapped out: what is read back from disk is slow, and times vary" if much else ""
        yield MachineFact(AREA, "swapped out", used, "bytes", "warning" if much else "ok", advice, "/proc/meminfo")
    pages = (place.text("sys/kernel/mm/transparent_hugepage/enabled") or "").partition("[")[2].partition("]")[0]
    if pages:
        off = pages == "never"
        advice = (
            "large tensors on the CPU gain from `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`"
            if off
            else ""
        )
        yield MachineFact(AREA, "transparent huge pages", pages, "", "note" if off else "ok", advice, "/sys/kernel/mm")
