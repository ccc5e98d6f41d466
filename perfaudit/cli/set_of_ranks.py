"""What a set of ranks has shown, put together from the last words of all of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from perfaudit.cli.ranks_report import HOST_BACKENDS
from perfaudit.distributed.compare import WARM_UP, spread_of_batches
from perfaudit.knobs._batches_by_length import WINDOW
from perfaudit.render.run_ranks import faults
from perfaudit.runs import RankRun, RankUpdates
from perfaudit.tune.ranks.plan import Shares
from perfaudit.tune.ranks.race import SetRun

Json = dict[str, Any]  # Any: nested JSON


def set_run_of(words: Sequence[Json], steps: int) -> SetRun:
    """What a set of ranks has shown: the slowest rank's median step, and why it failed, where it did."""
    names = {each.name for each in fields(RankRun)}
    ranks = [RankRun(**{name: value for name, value in told.items() if name in names}) for told in words]
    if any(each.ended not in ("enough", "finished") for each in ranks):
        told = faults(ranks)
        has_failed = any(each.ended == "failed" for each in ranks)
        return SetRun(why=told[0], has_failed=has_failed, all_ranks=" ".join(told))
    updates = [found for told in words if (found := RankUpdates.from_word(told)) is not None]
    counted = [each.between(WARM_UP).seconds for each in updates]
    if len(counted) < len(words) or not all(counted):
        return SetRun(why=f"a rank made no more than {WARM_UP} of {steps} steps")
    mean, tokens, padding, spread = _step_contents(updates)
    return SetRun(
        max(map(statistics.median, counted)), tuple(tuple(told.get("losses", ())) for told in words),
        mean=mean, tokens=tokens, padding=padding, spread=spread,
        norms=tuple(tuple(told.get("norms", ())) for told in words),
    )  # fmt: skip


def _step_contents(ranks: Sequence[RankUpdates]) -> tuple[float, float, float | None, float | None]:
    """What steps hold, of whole windows behind the first, or of all that count where there are none: see `SetRun`."""
    first, end = max(each.first for each in ranks), min(each.end for each in ranks)
    begin = max(first, WINDOW)
    windows = (end - begin) // WINDOW * WINDOW
    begin, end = (begin, begin + windows) if windows > 0 else (max(first, WARM_UP), end)
    counted = [each.between(begin, end) for each in ranks]
    mean = max(statistics.fmean(each.seconds) for each in counted)
    elements, padding = sum(sum(each.elements) for each in counted), sum(sum(each.padding) for each in counted)
    tells = all(any(each.padding) for each in counted)  # a mask, on each rank
    return (
        mean,
        elements / (end - begin) if tells else 0.0,
        padding / (elements + padding) if tells else None,
        spread_of_batches([[a + b for a, b in zip(each.elements, each.padding, strict=True)] for each in counted]),
    )


def shares_of_step(words: Sequence[Json]) -> Shares:
    """Where the step of a set goes, of the updates that count: see `Shares`."""
    updates = [found.between(WARM_UP) for told in words if (found := RankUpdates.from_word(told)) is not None]
    on_host = all(told.get("collectives", {}).get("backend", "gloo") in HOST_BACKENDS for told in words)
    waited = [sum(each.waited) / sum(each.seconds) for each in updates if sum(each.seconds)]
    phases = [told.get("phases", {}) for told in words]
    return Shares(
        communication=min(waited) if waited and on_host else None,
        update=max((each.get("optimizer", 0.0) for each in phases), default=0.0),
        loading=max((each.get("data_wait", 0.0) for each in phases), default=0.0),
    )
