"""Slow drifts: the ratios of consecutive gates, multiplied along the commits.

Wall times of different hours differ by more than most changes do. A ratio was measured with both versions side by side, so
where each gate's reference is the code of the gate before, the product of their ratios says how the newest code compares
with the oldest, however many hours lie between. Each link adds its error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from perfaudit.gate.series import DRIFT, Point, Series
from perfaudit.gate.store import COMMIT

CALLED_BEYOND = 0.01  # share of the step, as the gate tolerates; a bias of one gate, however small, adds up over many


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a commit stands in its chain: log of its step time over the first one's, squared halves of its interval."""

    chain: str
    log: float = 0.0
    down: float = 0.0
    up: float = 0.0
    links: int = 0


def drifts(ratios: Iterable[Series]) -> list[Series]:
    """Series of the metric `drift`, made of those of `ratio`, one for each chain of commits; that of the newest gate first.

    A value is the step time of a commit over that of the commit at which its chain began; n counts the gates between. The
    logs of the ratios add up, and so do the squares of the halves of their intervals, which are errors of separate runs, so
    the interval keeps the level that those of the gates have. A gate whose reference no earlier gate looked at begins a
    chain; one without an interval is left out, because nobody could say what it adds. Of a commit that was gated twice the
    more precise place counts. Where a ratio lies outside its interval, which the tightest bounds of several looks allow, the
    interval is widened to hold it.
    """
    found = [chain for one in ratios for chain in _chains(one)]
    return sorted(found, key=lambda each: each.points[-1].run, reverse=True)


def _chains(ratios: Series) -> list[Series]:
    places: dict[str, _Place] = {}
    points: dict[str, list[Point]] = {}
    for point in ratios.points:
        if not point.reference or point.low is None or point.high is None or not point.low > 0 < point.value:
            continue
        before = places.setdefault(_short(point.reference), _Place(_short(point.reference)))
        here = _next(before, point.value, point.low, point.high)
        known = places.get(_short(point.head))
        if known is None or (known.chain == here.chain and here.up + here.down < known.up + known.down):
            places[_short(point.head)] = here
        points.setdefault(here.chain, []).append(_point(point, here))
    return [replace(ratios, metric=DRIFT, points=tuple(chain)) for chain in points.values()]


def _next(before: _Place, ratio: float, low: float, high: float) -> _Place:
    down, up = math.log(ratio / min(low, ratio)), math.log(max(high, ratio) / ratio)
    return _Place(
        before.chain, before.log + math.log(ratio), before.down + down**2, before.up + up**2, before.links + 1
    )


def _point(point: Point, here: _Place) -> Point:
    low, high = math.exp(here.log - math.sqrt(here.down)), math.exp(here.log + math.sqrt(here.up))
    return replace(point, value=math.exp(here.log), low=low, high=high, n=here.links)


def _short(commit: str) -> str:
    """A hash as the commit of a machine's environment has it; the "+" of changed files stays: nobody checks these out."""
    return commit[:COMMIT] + ("+" if commit.endswith("+") and len(commit) > COMMIT else "")


def drift_direction(drift: Series) -> str:
    """What the whole chain says: "slower" or "faster" where the interval of its last point lies beyond what is tolerated."""
    last = drift.points[-1]
    if last.low is not None and last.low > 1 + CALLED_BEYOND:
        return "slower"
    if last.high is not None and last.high < 1 - CALLED_BEYOND:
        return "faster"
    return ""


def largest(drift: Series, ratios: Iterable[Series]) -> Point:
    """The gate of the chain that did most for what it is called, as a point of `ratio`: the slowest for "slower"."""
    runs = {point.run for point in drift.points}
    links = [p for one in ratios if one.target == drift.target for p in one.points if p.run in runs]
    way = -1 if drift_direction(drift) == "faster" else 1
    return max(links, key=lambda point: way * point.value)
