"""What ranks tell at their end, and the one run that the first of them reports of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfaudit.runs import RankRun, RankUpdates, Run

if TYPE_CHECKING:
    from perfaudit.distributed.compare import RankSteps
    from perfaudit.findings import Finding
    from perfaudit.script.observe import Seen

Json = dict[str, Any]  # Any: nested JSON
HOST_BACKENDS = ("gloo", "mpi", "cpu:gloo")  # whose collectives wait on the host, where their time is measured


def last_word(rank: int, host: str, run: Run, seen: Seen) -> Json:
    """What a rank tells at its end: a `RankRun`, and with it the steps that are compared."""
    from perfaudit.script.values import LOSS, NORM

    steps = seen.of_rank
    rank_run = RankRun(
        rank,
        run.ended,
        run.message,
        host,
        run.steps,
        run.seconds_per_step,
        phases=run.phases,
        samples_per_second=run.samples_per_second,
        stands=seen.stands,
    )
    return asdict(rank_run) | {
        "at": time.time(),
        "updates_per_step": run.updates_per_step,
        "updates": asdict(RankUpdates.of(seen.number - len(steps), steps)),
        "collectives": seen.facts.get("collectives", {}),
        "losses": [update[LOSS] for update in seen.kept if LOSS in update],
        "norms": [update[NORM] for update in seen.kept if NORM in update],
    }


def with_ranks(run: Run, words: Sequence[Json]) -> tuple[Run, tuple[Finding, ...]]:
    """The run of the first rank with what all have told, and what is to be said of them."""
    from perfaudit.distributed.compare import compare
    from perfaudit.distributed.rank_findings import Head, findings_of
    from perfaudit.rules import rule_heads

    per_step = run.updates_per_step or 1
    is_on_host = all(told.get("collectives", {}).get("backend", "gloo") in HOST_BACKENDS for told in words)
    by_rank, steps = [], []
    for told in words:
        rank, rank_steps = _told_by_rank(told, per_step, is_on_host)
        by_rank.append(rank)
        if rank_steps is not None:
            steps.append(rank_steps)
    meet = any(told.get("collectives") for told in words) or any(any(each.waited) for each in steps)
    comparison = compare(steps if is_on_host and meet and len(steps) == len(words) else [])
    heads = {id: Head(head.name, head.severity) for id, head in rule_heads().items()}
    run = replace(
        run,
        by_rank=tuple(by_rank),
        stragglers=tuple(
            replace(late, seconds=late.seconds * per_step, low=late.low * per_step, high=late.high * per_step)
            for late in comparison.stragglers
        ),
        communication_exposed=comparison.exposed,
        communication_overlap=_overlap(words),
        imbalance=comparison.imbalance,
        batch_spread=comparison.batch_spread,
    )
    return run, findings_of(
        replace(comparison, stragglers=run.stragglers), run.by_rank, _callers(words, run), heads, run.is_busy
    )


def _told_by_rank(told: Json, per_step: int, is_on_host: bool) -> tuple[RankRun, RankSteps | None]:
    """One rank of the report, and its steps to compare with those of the others; None where it has told none.

    per_step: updates of a step. is_on_host: the time in collectives is known, and with it what a rank needs itself.
    """
    from perfaudit.distributed.compare import WARM_UP, RankSteps

    names = {field.name for field in fields(RankRun)}
    rank = RankRun(**{name: value for name, value in told.items() if name in names})
    updates = RankUpdates.from_word(told)
    if updates is None:
        return rank, None
    has = told.get("collectives", {})
    computed = updates.computed
    if has.get("has_workers"):  # whose cores may be slow as well
        computed = [mine + theirs for mine, theirs in zip(computed, updates.loading, strict=True)]
    counted = updates.between(WARM_UP)
    if is_on_host and counted.seconds:
        parts = zip(counted.seconds, counted.waited, counted.queued, strict=True)
        rank = replace(
            rank,
            own_seconds_per_step=statistics.median(whole - (wait + queue) for whole, wait, queue in parts) * per_step,
            waited=sum(counted.waited) / sum(counted.seconds),
        )
    elements, padding = updates.elements, updates.padding
    held = sum(elements) + sum(padding)
    rank = replace(
        rank,
        elements=statistics.fmean(elements) * per_step if any(elements) else None,
        padding=sum(padding) / held if any(padding) else None,
    )
    return rank, RankSteps(
        rank.rank,
        updates.first,
        updates.seconds,
        updates.waited,
        updates.in_buckets,
        elements,
        updates.queued,
        computed,
        [own + beside for own, beside in zip(elements, padding, strict=True)],
        has.get("has_threads", False),
    )


def _callers(words: Sequence[Json], run: Run) -> list[Any]:
    """The script's own lines that call collectives, as the rank sees them that is in collectives for the shortest time."""
    from perfaudit.distributed.compare import WARM_UP
    from perfaudit.distributed.rank_findings import Caller
    from perfaudit.script.own_files import is_own
    from perfaudit.static.discover import shown_path

    told = [(each, updates) for each in words if (updates := RankUpdates.from_word(each)) is not None]
    if not told:
        return []
    least, updates = min(told, key=lambda each: sum(each[1].waited))
    callers = least["collectives"].get("callers", [])
    whole = sum(each["seconds"] for each in callers)
    counted = updates.between(WARM_UP)
    by_hand = sum(counted.waited) - sum(counted.in_buckets)
    called = by_hand / sum(counted.seconds) if sum(counted.seconds) else 0.0  # share of a step, of all lines
    number = max(1, updates.end // (run.updates_per_step or 1))
    return sorted(
        (
            Caller(
                shown_path(Path(each["file"])),
                each["line"],
                each["name"],
                called * each["seconds"] / whole,
                each["calls"] / number,
            )
            for each in callers
            if whole > 0 and is_own(each["file"])
        ),
        key=lambda caller: -caller.share,
    )


def _overlap(words: Sequence[Json]) -> float | None:
    """Share of the communication of DistributedDataParallel that was hidden behind computation, over all ranks."""
    models = [model for told in words for model in told.get("collectives", {}).get("parallel_models", [])]
    whole = sum(model["communication"] for model in models)
    return min(1.0, sum(model["hidden"] for model in models) / whole) if whole > 0 else None
