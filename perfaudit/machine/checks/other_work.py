"""What else runs here, and what the hypervisor takes away."""

from __future__ import annotations

import time
from collections.abc import Iterator

from perfaudit.machine.limits import load_average
from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "processor"
WATCHED = 0.3  # seconds
BUSY = 0.25  # of the usable cores that others want, from which on a training shares its core with them now and then
STOLEN = 0.02  # of the time


def look(place: Place) -> Iterator[MachineFact]:
    load = load_average()
    if load is not None:
        others = load > BUSY * place.cores
        advice = (
            "other programs want these cores: measure when they are done, or expect wide intervals" if others else ""
        )
        yield MachineFact(
            AREA, "load of the last minute", load, "", "warning" if others else "ok", advice, "getloadavg"
        )
    before = _ticks(place)
    if before is None:
        return
    time.sleep(WATCHED)
    after = _ticks(place) or before
    spent = sum(after) - sum(before)
    stolen = (after[7] - before[7]) / spent if spent > 0 and len(after) > 7 else 0.0
    advice = (
        "the host of this virtual machine gives its cores to others meanwhile: times vary" if stolen > STOLEN else ""
    )
    yield MachineFact(
        AREA, "stolen time", round(100 * stolen, 1), "%", "warning" if stolen > STOLEN else "ok", advice, "/proc/stat"
    )


def _ticks(place: Place) -> list[int] | None:
    """User, nice, system, idle, iowait, irq, softirq, steal since the start, in ticks."""
    words = (place.text("proc/stat") or "").partition("\n")[0].split()
    return [int(word) for word in words[1:9]] if words[:1] == ["cpu"] else None
