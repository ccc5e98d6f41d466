"""From what a script told to what is said of it: steps, their time and where it goes. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfaudit.runs import Run
from perfaudit.script.observe import Seen
from perfaudit.script.rhythm import Rhythm, find_rhythm
from perfaudit.script.spans import PHASES

Json = dict[str, Any]  # Any: nested JSON
WARM_UP = (
    3  # steps at most that do not count: autotuning, compilation, the allocator; a quarter of them where there are few
)
LIMITED_BY_DATA = 0.3  # of a step; a third of a step spent on waiting is gained by nothing but a faster loader


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its seconds, those of its phases in the order of PHASES, and what happened in it."""

    seconds: float
    phases: tuple[float, ...]
    samples: int
    backwards: int
    updates: int
    happenings: tuple[int, int]  # epochs begun, and calls of a model without gradients


def summarize(seen: Seen, script: str, in_place: bool = False) -> Run:
    """What is said of a run. Without a step, only how it ended."""
    rhythm = find_rhythm([update["optimizer"] for update in seen.updates])
    steps = _steps(seen.updates, rhythm)
    usual, uneven = _usual(steps[_warm_up(len(steps)) :])
    phases = _shares(usual)
    times = [step.seconds for step in usual]
    facts = seen.facts
    return Run(
        script=script,
        ended=seen.ended or "failed",
        message=seen.message,
        exit_code=seen.code,
        steps=len(steps),
        counted=len(usual),
        seconds_per_step=statistics.median(times) if times else None,
        quartiles=_quartiles(times),
        samples_per_second=_rate(usual),
        phases=phases,
        optimizers=len({update["optimizer"] for update in seen.updates if update["optimizer"] >= 0}),
        optimizer_names=tuple(facts.get("optimizers", ())),
        updates_per_step=round(statistics.median(step.updates for step in usual)) if usual else 0,
        backwards_per_step=statistics.fmean(step.backwards for step in usual) if usual else 0.0,
        is_regular=rhythm.is_regular,
        uneven=len(uneven),
        uneven_seconds=sum(step.seconds for step in uneven),
        setup_seconds=_setup(seen),
        limited_by=_limit(phases, facts.get("device", "cpu")) if phases else None,
        device=facts.get("device", ""),
        peak_memory_bytes=facts.get("peak_memory_bytes"),
        redirected=seen.redirected,
        redirected_more=seen.redirected_more,
        in_place=in_place,
    )


def _steps(updates: Sequence[Json], rhythm: Rhythm) -> list[Step]:
    return [
        Step(
            sum(update["seconds"] for update in updates[first:behind]),
            tuple(map(sum, zip(*(update["phases"] for update in updates[first:behind]), strict=True))),
            sum(update["samples"] for update in updates[first:behind]),
            sum(update["backwards"] for update in updates[first:behind]),
            behind - first,
            (
                sum(update["epochs"] for update in updates[first:behind]),
                sum(update["without_gradients"] for update in updates[first:behind]),
            ),
        )
        for first, behind in rhythm.steps
    ]


def _warm_up(steps: int) -> int:
    """How many of the first steps do not count: one at least, as the start of the script is in it."""
    return max(1, min(WARM_UP, steps // 4))


def _usual(steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Steps in which happened what happens in most, and the others."""
    if not steps:
        return [], []
    most = Counter(step.happenings for step in steps).most_common(1)[0][0]
    usual = [step for step in steps if step.happenings == most]
    return usual, [step for step in steps if step.happenings != most]


def _shares(steps: Sequence[Step]) -> dict[str, float]:
    """Share of all these steps by phase; what no phase accounts for is "other"."""
    total = sum(step.seconds for step in steps)
    if total <= 0:
        return {}
    sums = [sum(step.phases[number] for step in steps) for number in range(len(PHASES))]
    sums[-1] = max(0.0, total - sum(sums[:-1]))
    whole = sum(sums)
    return {name: seconds / whole for name, seconds in zip(PHASES, sums, strict=True)}


def _quartiles(times: Sequence[float]) -> tuple[float, float] | None:
    if len(times) < 2:
        return (times[0], times[0]) if times else None
    first, _, third = statistics.quantiles(times, n=4, method="inclusive")
    return first, third


def _rate(steps: Sequence[Step]) -> float | None:
    """Samples a second over all these steps; None where no batch was seen."""
    samples, seconds = sum(step.samples for step in steps), sum(step.seconds for step in steps)
    return samples / seconds if samples and seconds else None


def _setup(seen: Seen) -> float | None:
    """Seconds from the start of the process until the first batch was there."""
    first = seen.facts.get("first_batch_at")
    return first - seen.began if first is not None else None


def _limit(phases: Mapping[str, float], device: str) -> str:
    """What a step waits for most: batches, or else on a host without a device, computing.

    With a device: "device" where the host waits for it, in copies and reads, longer than it works besides; else "host".
    """
    if phases["data_wait"] >= LIMITED_BY_DATA:
        return "data"
    if device == "cpu":
        return "compute"
    waits = phases["host_reads"] + phases["host_to_device"]
    return "device" if waits >= 0.5 * (1 - phases["data_wait"]) else "host"
