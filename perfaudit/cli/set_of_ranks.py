"""What a set of ranks has shown, put together from the last words of all of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from perfaudit.distributed.compare import WARM_UP, spread_of_batches
from perfaudit.knobs._batches_by_length import WINDOW
from perfaudit.render.run_ranks import faults
from perfaudit.runs import RankRun
from perfaudit.tune.ranks.race import SetRun

Json = dict[str, Any]  # Any: nested JSON


def set_run_of(words: Sequence[Json], steps: int) -> SetRun:
    """What a set of ranks has shown: the slowest rank's median step, and why it failed, where it did."""
    names = {each.name for each in fields(RankRun)}
    ranks = [RankRun(**{name: value for name, value in told.items() if name in names}) for told in words]
    if any(each.ended not in ("enough", "finished") for each in ranks):
        return SetRun(why=faults(ranks)[0], has_failed=any(each.ended == "failed" for each in ranks))
    behind = [told["updates"][0][max(0, WARM_UP - told["first_update"]) :] for told in words if told.get("updates")]
    if len(behind) < len(words) or not all(behind):
        return SetRun(why=f"a rank made no more than {WARM_UP} of {steps} steps")
    mean, tokens, padding, spread = _step_contents(words)
    return SetRun(
        max(statistics.median(seconds) for seconds in behind), tuple(tuple(told.get("losses", ())) for told in words),
        mean=mean, tokens=tokens, padding=padding, spread=spread,
        norms=tuple(tuple(told.get("norms", ())) for told in words),
    )  # fmt: skip


def _step_contents(words: Sequence[Json]) -> tuple[float, float, float | None, float | None]:
    """What steps hold, of whole windows behind the first, or of all that count where there are none: see `SetRun`."""
    first = max(told["first_update"] for told in words)
    behind = min(told["first_update"] + len(told["updates"][0]) for told in words)
    begin = max(first, WINDOW)
    end = begin + (behind - begin) // WINDOW * WINDOW
    if end <= begin:
        begin, end = max(first, WARM_UP), behind
    rows = [
        [column[begin - told["first_update"] : end - told["first_update"]] for column in told["updates"]]
        for told in words
    ]
    mean = max(statistics.fmean(row[0]) for row in rows)
    elements, padding = sum(sum(row[5]) for row in rows), sum(sum(row[6]) for row in rows)
    tells = all(any(row[6]) for row in rows)  # a mask, on each rank
    return (
        mean,
        elements / (end - begin) if tells else 0.0,
        padding / (elements + padding) if tells else None,
        spread_of_batches([[a + b for a, b in zip(row[5], row[6], strict=True)] for row in rows]),
    )
