"""From what a script told to what is said of it: steps, their time and where it goes. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from perfaudit.runs import Run
from perfaudit.script.observe import Seen
from perfaudit.script.spans import PHASES
from perfaudit.script.tally import Kind

LIMITED_BY_DATA = 0.3  # of a step; a third of a step spent on waiting is gained by nothing but a faster loader
LIMITED_BY_WAITING = 0.5  # of the time, besides waiting for data: a thread that runs half of the time or less
DEVICE_BEHIND = 0.5  # of the updates, at whose end the device has not done the one before
HOST_WAITS = 0.2  # of a step, in reads and copies; a read of what is there takes some microseconds


def summarize(seen: Seen, script: str, in_place: bool = False) -> Run:
    """What is said of a run. Without a step, only how it ended."""
    tally = seen.tally.with_rest(seen.updates)
    usual, uneven = tally.usual, tally.uneven
    phases = _shares(usual)
    facts = seen.facts
    return Run(
        script=script,
        ended=seen.ended or "failed",
        message=seen.message,
        exit_code=seen.code,
        steps=tally.steps,
        counted=usual.count,
        seconds_per_step=statistics.median(usual.times) if usual.times else None,
        quartiles=_quartiles(usual.times),
        samples_per_second=_rate(usual),
        phases=phases,
        optimizers=len(tally.optimizers),
        optimizer_names=tuple(facts.get("optimizers", ())),
        updates_per_step=round(usual.updates / usual.count) if usual.count else 0,
        backwards_per_step=usual.backwards / usual.count if usual.count else 0.0,
        is_regular=tally.is_regular,
        uneven=sum(kind.count for kind in uneven),
        uneven_seconds=sum(kind.seconds for kind in uneven),
        setup_seconds=_setup(seen),
        limited_by=_limit(phases, facts) if phases else None,
        device=facts.get("device", ""),
        peak_memory_bytes=facts.get("peak_memory_bytes"),
        redirected=seen.redirected,
        redirected_more=seen.redirected_more,
        in_place=in_place,
        in_started=bool(facts.get("is_started")),
        is_traced=bool(facts.get("is_traced")),
    )


def _shares(usual: Kind) -> dict[str, float]:
    """Share of all these steps by phase; what no phase accounts for is "other"."""
    if usual.seconds <= 0:
        return {}
    sums = [*usual.phases[:-1], max(0.0, usual.seconds - sum(usual.phases[:-1]))]
    whole = sum(sums)
    return {name: seconds / whole for name, seconds in zip(PHASES, sums, strict=True)}


def _quartiles(times: Sequence[float]) -> tuple[float, float] | None:
    if len(times) < 2:
        return (times[0], times[0]) if times else None
    first, _, third = statistics.quantiles(times, n=4, method="inclusive")
    return first, third


def _rate(usual: Kind) -> float | None:
    """Samples a second over all these steps; None where no batch was seen."""
    return usual.samples / usual.seconds if usual.samples and usual.seconds else None


def _setup(seen: Seen) -> float | None:
    """Seconds from the start of the process until the first batch was there."""
    first = seen.facts.get("first_batch_at")
    return first - seen.began if first is not None else None


def _limit(phases: Mapping[str, float], facts: Mapping[str, Any]) -> str:
    """What a step waits for most: batches, or else on a host without a device, computing, if its thread is not idle.

    With a device: "device" where that is a whole update behind the host, or where the host waits for it in copies and reads;
    else the device has done its work when the host comes with more: "host".
    """
    if phases["data_wait"] >= LIMITED_BY_DATA:
        return "data"
    if facts.get("device", "cpu") == "cpu":
        is_idle = facts.get("blocked", 0.0) - phases["data_wait"] >= LIMITED_BY_WAITING
        return "host" if is_idle else "compute"
    waits = phases["host_reads"] + phases["host_to_device"]
    is_behind = facts.get("behind", 0.0) >= DEVICE_BEHIND
    return "device" if is_behind or waits >= HOST_WAITS else "host"
