"""Reports of traces, small, hostile and large, for tests of the formats."""

from __future__ import annotations

import functools

from html_pages import EVIL

from perfaudit.findings import Finding, Location, Saving
from perfaudit.report import Report, Skipped
from perfaudit.traces import (
    CollectiveWaits,
    FindingChange,
    IdleWhere,
    KernelRow,
    RankTrace,
    Straggler,
    Stretch,
    TraceChange,
    Traces,
)

SHARES = {
    "compute": 0.5,
    "communication_exposed": 0.2,
    "memory_exposed": 0.05,
    "idle_data": 0.1,
    "idle_sync": 0.05,
    "idle_allocation": 0.04,
    "idle_launch": 0.03,
    "idle_other": 0.03,
}


@functools.cache  # a thousand ranks have the same
def _timeline(stretches: int) -> tuple[Stretch, ...]:
    kinds = list(SHARES)
    return tuple(Stretch(0.001 * n, 0.001 * (n + 1), kinds[n % len(kinds)]) for n in range(stretches))


def made_rank(number: int, stretches: int = 8, name: str = EVIL) -> RankTrace:
    where = (IdleWhere("data", 0.1, name, name, name),)
    kernels = (KernelRow(name, 0.3, 7),) * 20
    return RankTrace(
        f"rank{number}{name}.json", number, "cuda:0", 1.0, 5, SHARES, notes=("stacks",), where=where, kernels=kernels,
        timeline=_timeline(stretches),
    )  # fmt: skip


def made_report(ranks: int = 2, stretches: int = 8, collectives: int = 3, name: str = EVIL) -> Report:
    finding = Finding(
        "PA901", "device-waits-for-data", "warning", f"waits for `{name}`", Location(name, 3, 1, 3, 1),
        Saving("profiled", 0.0, 0.27), note=f"mostly under `{name}`",
    )  # fmt: skip
    waits = CollectiveWaits(
        tuple(range(ranks)), (name,) * collectives, tuple((0.001 * (n % 7),) * collectives for n in range(ranks))
    )
    traces = Traces(
        f"20 ms a step {name}",
        tuple(made_rank(n, stretches, name) for n in range(ranks)),
        (Straggler(ranks - 1, 3, 9, 0.2),),
        waits,
        compared=TraceChange(name, name, 0.02, 0.01, {"compute": 0.2}, (FindingChange("PA902", 0.2, None),)),
    )
    return Report("trace", (finding,), (Skipped(name, name),), files=ranks, notes=(name,), traces=traces)
