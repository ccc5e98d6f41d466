"""Cores that this process may use, of those there are."""

from __future__ import annotations

import os
from collections.abc import Iterator

from perfaudit.machine.limits import core_quota, physical_cores
from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "processor"


def look(place: Place) -> Iterator[MachineFact]:
    there = os.cpu_count() or place.cores
    quota = core_quota(place.root)
    if quota is not None and quota < there:
        why = f"a control group gives this process {quota:g} of {there} cores"
    elif place.cores < there:
        why = f"an affinity mask gives this process {place.cores} of {there} cores"
    else:
        why = ""
    advice = f"{why}: set workers and threads for these, not for os.cpu_count()" if why else ""
    yield MachineFact(AREA, "usable cores", place.cores, "", "note" if why else "ok", advice, "affinity, cgroup")
    silicon = physical_cores(place.root)
    shared = "two hyper-threads share a core: threads of operators beyond this number gain little"
    advice = shared if silicon < place.cores else ""
    yield MachineFact(AREA, "physical cores", silicon, "", "note" if advice else "ok", advice, "cpu topology")
    nodes = len(list((place.root / "sys/devices/system/node").glob("node[0-9]*")))
    on_one = "keep one process on one node (`numactl --cpunodebind=0 --membind=0`, `torchrun --numa-binding`)"
    if nodes:
        advice = on_one if nodes > 1 else ""
        yield MachineFact(AREA, "NUMA nodes", nodes, "", "note" if advice else "ok", advice, "/sys/devices")
