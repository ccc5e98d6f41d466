"""What the history of the gates says of one metric, as series of points that may be compared with each other."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfaudit.gate.store import reading

DRIFT = "drift"  # computed from the ratios (`gate.drift`), not kept

# Times belong to one machine and its versions, counters to what decides which operators run, findings to the code alone.
_COUNTERS_DEPEND_ON = ("device", "platform", "torch")

_QUERY = """
    SELECT runs.id, at, head, reference, against, kind, layer, target, value, low, high, n, measured.verdict, environment
    FROM measured JOIN runs ON runs.id = run
    WHERE metric = ? AND typeof(value) IN ('integer', 'real') AND (? IS NULL OR target = ?)
    ORDER BY runs.id, target
"""


@dataclass(frozen=True, slots=True)
class Point:
    """A value that one gate came to. at: UTC, ISO 8601. head: commit of the code, with "+" where it was changed.

    reference: full hash of the commit it was compared with, "" for a file. value, low, high: in the unit of the metric
    (seconds, bytes, counts, a ratio); no low and high where no interval is known. n: what the value rests on, as quads.
    """

    run: int
    at: str
    head: str
    reference: str
    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    verdict: str = ""
    against: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one metric and target that may be compared, oldest first. environment: what they have in common.

    kind: of times, that of their gates: with "ref" two versions took turns, with "baseline" one ran alone, which takes
    another time for the same code. "" for other layers, whose values do not depend on it.
    """

    metric: str
    layer: str
    target: str
    environment: dict[str, str] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    kind: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether a difference of two values is one, without any statistics."""
        return self.layer != "time"


@dataclass(frozen=True, slots=True)
class Gates:
    """How many gates a folder has seen, and the last one."""

    count: int = 0
    at: str = ""
    verdict: str = ""


def series(folder: Path, metric: str, target: str | None = None) -> list[Series]:
    """The series of a metric, the one with the newest gate first; [] where there is none. Raises UserError as `reading`.

    Points of other machines or versions, and times taken in another way, are series of their own. For `drift` see
    `gate.drift.drifts`.
    """
    with reading(folder) as connection:
        rows = connection.execute(_QUERY, (metric, target, target)).fetchall() if connection else []
    grouped: dict[tuple[str, str, str, str], list[Point]] = {}
    for run, at, head, reference, against, kind, layer, of, value, low, high, n, verdict, environment in rows:
        way = kind if layer == "time" else ""
        key = (layer, of, json.dumps(_comparable(layer, environment), sort_keys=True), way)
        point = Point(run, at, head, reference, value, _number(low), _number(high), n, verdict, against)
        grouped.setdefault(key, []).append(point)
    found = [
        Series(metric, layer, of, json.loads(shared), tuple(points), way)
        for (layer, of, shared, way), points in grouped.items()
    ]
    return sorted(found, key=lambda each: each.points[-1].run, reverse=True)


def metrics(folder: Path) -> list[str]:
    """The metrics that the history knows, times first; with `drift` where there are ratios."""
    found = _names(folder, "SELECT DISTINCT metric, layer FROM measured ORDER BY layer != 'time', layer, metric")
    return [name for metric in found for name in ((metric, DRIFT) if metric == "ratio" else (metric,))]


def targets(folder: Path) -> list[str]:
    """The targets that the history knows."""
    return _names(folder, "SELECT DISTINCT target FROM measured WHERE target != '' ORDER BY target")


def gates(folder: Path) -> Gates:
    """How many gates were run here. Raises UserError as `reading`."""
    with reading(folder) as connection:
        if connection is None:
            return Gates()
        row = connection.execute("SELECT count(*) OVER (), at, verdict FROM runs ORDER BY id DESC LIMIT 1").fetchone()
    return Gates(*row) if row else Gates()


def _names(folder: Path, query: str) -> list[str]:
    with reading(folder) as connection:
        rows: Iterable[Any] = connection.execute(query) if connection else ()  # Any: rows of any width
        return [row[0] for row in rows]


def _comparable(layer: str, text: str) -> dict[str, str]:
    """What of the environment the values of a layer depend on."""
    if layer == "findings":
        return {}
    try:
        environment = json.loads(text)
    except ValueError:
        environment = None
    if not isinstance(environment, dict):
        environment = {}
    kept = environment if layer == "time" else {k: environment[k] for k in _COUNTERS_DEPEND_ON if k in environment}
    return {str(name): str(value) for name, value in kept.items()}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
