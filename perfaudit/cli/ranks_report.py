"""What ranks tell at their end, and the one run that the first of them reports of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfaudit.runs import RankRun, Run

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
        "first_update": seen.number - len(steps),
        "updates_per_step": run.updates_per_step,
        "updates": [list(column) for column in zip(*steps, strict=True)],
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
    columns = told.get("updates") or []
    if not columns:
        return rank, None
    seconds, waited, in_buckets, queued, computed, elements, padding, loading = columns
    has = told.get("collectives", {})
    if has.get("has_workers"):  # whose cores may be slow as well
        computed = [mine + theirs for mine, theirs in zip(computed, loading, strict=True)]
    skipped = max(0, WARM_UP - told["first_update"])
    if is_on_host and len(seconds) > skipped:
        others = [wait + queue for wait, queue in zip(waited, queued, strict=True)]
        own = [whole - other for whole, other in zip(seconds, others, strict=True)][skipped:]
        rank = replace(
            rank,
            own_seconds_per_step=statistics.median(own) * per_step,
            waited=sum(waited[skipped:]) / sum(seconds[skipped:]),
        )
    held = sum(elements) + sum(padding)
    rank = replace(
        rank,
        elements=statistics.fmean(elements) * per_step if any(elements) else None,
        padding=sum(padding) / held if any(padding) else None,
    )
    whole = [own + beside for own, beside in zip(elements, padding, strict=True)]
    first, has_threads = told["first_update"], has.get("has_threads", False)
    return rank, RankSteps(
        rank.rank, first, seconds, waited, in_buckets, elements, queued, computed, whole, has_threads
    )


def _callers(words: Sequence[Json], run: Run) -> list[Any]:
    """The script's own lines that call collectives, as the rank sees them that is in collectives for the shortest time."""
    from perfaudit.distributed.compare import WARM_UP
    from perfaudit.distributed.rank_findings import Caller
    from perfaudit.script.own_files import is_own
    from perfaudit.static.discover import shown_path

    told = [each for each in words if each.get("updates")]
    if not told:
        return []
    least = min(told, key=lambda each: sum(each["updates"][1]))
    callers = least["collectives"].get("callers", [])
    whole = sum(each["seconds"] for each in callers)
    seconds, waited, in_buckets, *_ = (column[max(0, WARM_UP - least["first_update"]) :] for column in least["updates"])
    called = (sum(waited) - sum(in_buckets)) / sum(seconds) if sum(seconds) else 0.0  # share of a step, of all lines
    number = max(1, (least["first_update"] + len(least["updates"][0])) // (run.updates_per_step or 1))
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
