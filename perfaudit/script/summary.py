"""From what a script told to what is said of it: steps, their time and where it goes. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from perfaudit.runs import ProfileRow, Run, StepsProfile
from perfaudit.script.observe import Seen
from perfaudit.script.spans import PHASES
from perfaudit.script.tally import Kind, Tally

LIMITED_BY_DATA = 0.3  # of a step; a third of a step spent on waiting is gained by nothing but a faster loader
LIMITED_BY_WAITING = 0.5  # of the time, besides waiting for data: a thread that runs half of the time or less
DEVICE_BEHIND = 0.5  # of the updates, at whose end the device has not done the one before
HOST_WAITS = 0.2  # of a step, in reads and copies; a read of what is there takes some microseconds


def summarize(seen: Seen, script: str, in_place: bool = False) -> Run:
    """What is said of a run. Without a step, only how it ended."""
    tally = seen.tally.with_rest(seen.updates)
    usual, uneven = tally.usual, tally.uneven
    phases = shares_of(usual)
    facts = seen.facts
    setup = setup_of(seen)
    return Run(
        script=script,
        ended=seen.ended or "failed",
        message=seen.message,
        exit_code=seen.code,
        stands=seen.stands,
        steps=tally.steps,
        counted=usual.count,
        seconds_per_step=statistics.median(usual.times) if usual.times else None,
        mean_seconds_per_step=usual.seconds / usual.count if usual.count else None,
        quartiles=_quartiles(usual.times),
        samples_per_second=rate_of(usual),
        phases=phases,
        steps_watched=usual.watched,
        optimizers=_optimizers(tally),
        optimizer_names=tuple(facts.get("optimizers", ())),
        updates_per_step=round(usual.updates / usual.count) if usual.count else 0,
        backwards_per_step=usual.backwards / usual.watched if usual.watched else 0.0,
        backwards_in_update=usual.backwards_in_update / usual.watched if usual.watched else 0.0,
        gradients_per_step=usual.gradients / usual.watched if usual.watched else 0.0,
        backwards_zeroed=usual.zeroed / usual.watched if usual.watched else 0.0,
        has_long_updates=bool(facts.get("has_long_updates")),
        is_regular=tally.is_regular,
        uneven=sum(kind.count for kind in uneven),
        uneven_seconds=sum(kind.seconds for kind in uneven),
        setup_seconds=sum(setup.values()) if setup else None,
        setup=setup,
        setup_share=_setup_share(sum(setup.values()), tally) if setup else None,
        limited_by=_limit(phases, facts) if phases else None,
        device=facts.get("device", ""),
        peak_memory_bytes=facts.get("peak_memory_bytes"),
        redirected=seen.redirected,
        redirected_more=seen.redirected_more,
        in_place=in_place,
        in_started=bool(facts.get("is_started")),
        is_traced=bool(facts.get("is_traced")),
        queued=facts.get("queued"),
        profile=_profile(seen.profile),
    )


def _optimizers(tally: Tally) -> int:
    """How many a step has. Where each update is a step, optimizers train one behind the other, and a step has one of them."""
    usual, optimizers = tally.usual, len(tally.optimizers)
    return min(optimizers, 1) if tally.is_regular and usual.updates == usual.count > 0 else optimizers


def shares_of(usual: Kind) -> dict[str, float]:
    """Share of all these steps whose phases were timed by phase; what no phase accounts for is "other"."""
    if usual.watched_seconds <= 0:
        return {}
    sums = [*usual.phases[:-1], max(0.0, usual.watched_seconds - sum(usual.phases[:-1]))]
    whole = sum(sums)
    return {name: seconds / whole for name, seconds in zip(PHASES, sums, strict=True)}


def _quartiles(times: Sequence[float]) -> tuple[float, float] | None:
    if len(times) < 2:
        return (times[0], times[0]) if times else None
    first, _, third = statistics.quantiles(times, n=4, method="inclusive")
    return first, third


def rate_of(usual: Kind) -> float | None:
    """Samples a second over all these steps; None where most of them do not tell how many they had."""
    if 2 * usual.told <= usual.watched or not usual.seconds:
        return None
    return usual.samples / usual.told * usual.count / usual.seconds


def setup_of(seen: Seen) -> dict[str, float]:
    """Seconds from the start of the process until the first batch was there, by part; {} where none was."""
    ends = {
        "until_torch": seen.facts.get("torch_at"),
        "until_loader": seen.facts.get("loader_at"),
        "until_batch": seen.facts.get("first_batch_at"),
    }
    if ends["until_batch"] is None:
        return {}
    found, began = {}, seen.began
    for name, end in ends.items():
        if end is not None:
            found[name], began = max(0.0, end - began), max(began, end)
    return found


def _setup_share(setup: float, tally: Tally) -> float:
    """Of the setup in all that was run; the first steps, in which it lies, count by the others."""
    counted = [tally.usual, *tally.uneven]
    steps, seconds = sum(kind.count for kind in counted), sum(kind.seconds for kind in counted)
    training = seconds * tally.steps / steps if steps else 0.0
    return setup / (setup + training) if setup + training else 0.0


def _profile(told: Mapping[str, Any]) -> StepsProfile | None:
    """The profile as the child told it; None where none was wanted."""
    if not told:
        return None
    rows = {what: tuple(ProfileRow(**row) for row in told.get(what, ())) for what in ("operators", "kernels")}
    return StepsProfile(told["steps"], rows["operators"], rows["kernels"], told.get("why", ""))


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
