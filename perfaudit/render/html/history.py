"""The history of a folder as pages: a metric of its gates as a chart with its changes of level, its runs, and one of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfaudit.render.html.charts import axis_over
from perfaudit.render.html.curves import Curves, Line, Point, curves
from perfaudit.render.html.data import json_element
from perfaudit.render.html.frame import whole_page
from perfaudit.render.html.markup import (
    Markup,
    Part,
    bullets,
    element,
    fold_away,
    paragraphs,
    section,
    sentence,
    table,
    together,
    words,
)
from perfaudit.render.words import count

MOST_POINTS = 300  # of a chart; a page of several targets keeps its size
MOST_TARGETS = 6
MOST_TOLD = 3  # targets in the first sentence
MOST_ROWS = 500  # of a table
ROOM = 400_000  # bytes of the data
MOST_MARKS = 6  # changes that are named in the chart; the list below it has more


@dataclass(frozen=True, slots=True)
class GateValue:
    """What one gate came to. said: the value, its interval or "", in their unit."""

    when: str
    commit: str
    value: float
    low: float | None
    high: float | None
    said: tuple[str, str]
    verdict: str


@dataclass(frozen=True, slots=True)
class MetricHistory:
    """A metric of one target, the oldest gate first.

    changes: where a new level begins, with its words for the chart; levels: the level at each gate, None where none is known.
    about, seen, others: sentences on the gates, on what is seen in them, and on what is not compared with them.
    """

    metric: str
    what: str
    target: str
    values: tuple[GateValue, ...]
    changes: dict[int, str]
    levels: tuple[float | None, ...]
    about: tuple[str, ...]
    seen: tuple[str, ...]
    others: tuple[str, ...]
    text: Callable[[float], str]


def metric_page(metric: str, shown: Sequence[MetricHistory], data: dict[str, Any]) -> str:  # Any: nested JSON
    """A chart for each target with what is seen in it, and a table of its gates."""
    about = f"{metric}: {shown[0].what}" if shown[0].what else ""
    verdict = "; ".join(_newest(each) for each in shown[:MOST_TOLD])
    header = element(
        "header",
        element("h1", f"perfaudit history: {metric}"),
        element("p", words(verdict), class_="verdict"),
        paragraphs([about]),
    )
    body = together(_metric_section(number, each) for number, each in enumerate(shown[:MOST_TARGETS], start=1))
    left = len(shown) - MOST_TARGETS
    more = element("p", f"{left} more targets are not shown; --target shows one.", class_="dim") if left > 0 else ""
    return _history_page(f"perfaudit history: {metric}", header, together(body, more), data)


def _newest(shown: MetricHistory) -> str:
    """The newest value of a target, and how often its level changed."""
    of = f"{shown.target or shown.metric}: "
    changed = count(len(shown.changes), "change", "changes") if shown.changes else "no change"
    if shown.metric == "drift" and shown.seen:
        return f"{of}{shown.seen[0]}"
    return f"{of}last {shown.values[-1].said[0]}, {changed} of level"


def _metric_section(number: int, shown: MetricHistory) -> Markup:
    inner = together(
        paragraphs(map(sentence, shown.about), class_="dim"),
        _chart(shown),
        bullets(words(said) for said in shown.seen),
        paragraphs(map(sentence, shown.others), class_="dim"),
        fold_away("All gates as a table", _gates_table(shown)),
    )
    return section(shown.target or shown.metric, f"target-{number}", inner)


def _chart(shown: MetricHistory) -> Markup:
    """The newest values with their intervals, the levels they lie at, and where these change."""
    start = max(0, len(shown.values) - MOST_POINTS)
    values = shown.values[start:]
    changes = {index - start: said for index, said in shown.changes.items() if index >= start}
    ends = [end for one in values for end in (one.low, one.high, one.value) if end is not None]
    axis = axis_over(ends, shown.text, 0.12)
    if all(float(end).is_integer() for end in ends):  # a count
        axis = replace(axis, ticks=tuple(tick for tick in axis.ticks if float(tick).is_integer()))
    points = tuple(
        Point(place, one.value, one.low, one.high, "control" if place in changes else "plain")
        for place, one in enumerate(values)
    )
    lines = [Line("gates", points, 0)]
    levels = shown.levels[start:]
    if any(level is not None for level in levels):
        level = tuple(Point(place, value, kind="") for place, value in enumerate(levels) if value is not None)
        lines.append(Line("level", level, 1))
    marks = {place: changes[place] for place in sorted(changes)[-MOST_MARKS:]}
    label = f"{shown.metric} of {len(values)} gates, the oldest first; the list and the table have the numbers"
    drawn = Curves(_days([one.when for one in values]), lines, axis, label, marks)
    cut = f" The newest {MOST_POINTS} of {len(shown.values)}." if start else ""
    return curves(drawn, f"Each gate, the oldest first; the axis does not begin at 0.{cut}")


def _days(whens: Sequence[str]) -> list[str]:
    """The days of these moments, and where all are of one day their times."""
    days = [when[:10] for when in whens]
    return list(whens) if len(set(days)) == 1 else days


def _gates_table(shown: MetricHistory) -> Markup:
    rows: list[list[Part]] = []
    for index, one in reversed(list(enumerate(shown.values))[-MOST_ROWS:]):
        value, interval = one.said
        mark = "▲ " if index in shown.changes else ""
        rows.append([one.when, element("code", one.commit), f"{mark}{value}", interval, one.verdict])
    columns = ("when", "commit", shown.metric, "interval", "verdict")
    return table(f"Gates, the newest first; ▲ marks where a new level begins, {shown.metric}", columns, rows)


def runs_page(columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str], data: dict[str, Any]) -> str:
    """The runs of a folder, the newest first."""
    said = f"{len(rows)} {'run' if len(rows) == 1 else 'runs'}"
    header = element("header", element("h1", "perfaudit history"), element("p", said, class_="verdict"))
    cells: list[list[Part]] = [
        [row[0], *(element("td", cell, class_="words") for cell in row[1:])] for row in rows[:MOST_ROWS]
    ]
    listed = section("Runs", "runs", table("Runs, the newest first", columns, cells, "listed") if rows else "")
    body = together(listed, section("Notes", "notes", bullets(map(words, notes))))
    return _history_page("perfaudit history", header, body, data)


def _history_page(title: str, header: Markup, body: Markup, data: dict[str, Any]) -> str:
    told = json_element(data)
    if len(told.encode()) > ROOM:
        told = json_element({"left_out": ["everything"]})
    is_cut = "left_out" in told
    said = (
        "`--format json` has the data of this page."
        if is_cut
        else "This page holds its data as JSON, in its element `report`."
    )
    return whole_page(title, header, body, element("p", words(said), class_="dim"), told)
