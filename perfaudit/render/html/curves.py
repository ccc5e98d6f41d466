"""Curves over places that stand in a row: settings of a knob, steps, gates; drawn as `charts` draws, with numbers beside."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfaudit.render.html.charts import Axis, marker, percent, upright
from perfaudit.render.html.markup import Markup, Part, element, together

MOST_NAMES = 12  # below the places; of more, some have none
LONG_NAME = 6  # characters
NEAR_MIDDLE = 0.02  # of the width; three dates that are further from even touch each other on 400 pixels


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a place, counted from 0. kind: how it is marked, "" for a point of the line without a sign."""

    place: int
    value: float
    low: float | None = None
    high: float | None = None
    kind: str = "plain"


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together, in the order of their places; those of neighbouring places are joined.

    style: a number of 0 to 3, each a colour and dashes of its own.
    """

    name: str
    points: tuple[Point, ...]
    style: int = 0


@dataclass(frozen=True, slots=True)
class Curves:
    """A picture of lines over named places. marks: what is said of places, with a line from top to bottom."""

    names: Sequence[str]
    lines: Sequence[Line]
    axis: Axis
    label: str
    marks: Mapping[int, str] = field(default_factory=dict)
    across: str = ""  # what the places are


def curves(drawn: Curves, caption: Part, *below: Part) -> Markup:
    """The picture with its caption. A screen reader hears the caption and what is `below`, such as a table of the numbers."""
    legend: Part = ""
    if len(drawn.lines) > 1:
        items = (element("li", _sample(line.style), line.name) for line in drawn.lines)
        legend = element("ul", together(items), class_="legend", aria_hidden="true")
    left = element("svg", _levels(drawn.axis), class_="levels", aria_hidden="true", focusable="false")
    plot = element("svg", _plot(drawn), class_="plot", role="img", aria_label=drawn.label)
    under = element("svg", _names(drawn), class_="ticks", aria_hidden="true", focusable="false")
    grid = element("div", left, plot, element("span", class_="corner"), under, class_="curve")
    across = element("p", drawn.across, class_="across", aria_hidden="true") if drawn.across else ""
    return element("figure", element("figcaption", caption), legend, grid, across, *below)


def _sample(style: int) -> Markup:
    line = element("line", x1="0%", x2="100%", y1="50%", y2="50%", class_=f"line line{style}")
    return element("svg", line, aria_hidden="true", focusable="false")


def _at(drawn: Curves, place: float) -> float:
    """Where a place lies, in percent from the left."""
    return 100 * (place + 0.5) / max(len(drawn.names), 1)


def _up(axis: Axis, value: float) -> float:
    """Where a value lies, in percent from the top."""
    return 100 - axis.at(value)


def _levels(axis: Axis) -> Markup:
    texts = (
        element("text", axis.text(tick) if tick else "0", x="100%", y=percent(_up(axis, tick)), dy=_shift(axis, tick),
                text_anchor="end", class_="tick")
        for tick in axis.ticks
    )  # fmt: skip
    return together(texts)


def _shift(axis: Axis, tick: float) -> str:
    """So that no number leaves the picture at its top or bottom."""
    at = _up(axis, tick)
    return "0.75em" if at < 4 else "0em" if at > 96 else "0.35em"


def _plot(drawn: Curves) -> Markup:
    axis = drawn.axis
    parts: list[Part] = [
        element("line", x1="0%", x2="100%", y1=percent(_up(axis, tick)), y2=percent(_up(axis, tick)), class_="grid")
        for tick in axis.ticks
    ]
    for place, said in sorted(drawn.marks.items()):
        x = _at(drawn, place)
        anchor, shift = ("end", "-0.4em") if x > 60 else ("start", "0.4em")
        parts += [
            upright(x, "base"),
            element("text", said, x=percent(x), y="1em", dx=shift, text_anchor=anchor, class_="tick said"),
        ]
    for line in drawn.lines:
        parts += _line(drawn, line)
    return together(parts)


def _line(drawn: Curves, line: Line) -> list[Part]:
    axis = drawn.axis
    places = [(_at(drawn, point.place), _up(axis, point.value), point) for point in line.points]
    parts: list[Part] = [
        element("line", x1=percent(x1), y1=percent(y1), x2=percent(x2), y2=percent(y2), class_=f"line line{line.style}")
        for (x1, y1, one), (x2, y2, other) in itertools.pairwise(places)
        if other.place == one.place + 1
    ]
    for x, y, point in places:
        if point.low is not None and point.high is not None and point.low != point.high:
            ends = percent(_up(axis, point.low)), percent(_up(axis, point.high))
            parts.append(
                element("line", x1=percent(x), x2=percent(x), y1=ends[0], y2=ends[1], class_=f"whisker {point.kind}")
            )
        if point.kind:
            parts.append(marker(x, y, point.kind))
    return parts


def _names(drawn: Curves) -> Markup:
    """Names below the places: of long ones the first, the last, and one in the middle where that does not touch these."""
    last = len(drawn.names) - 1
    if any(len(name) >= LONG_NAME for name in drawn.names) and last > 1:
        shown = {0: "start", last: "end"}
        if abs(last // 2 / last - 0.5) <= NEAR_MIDDLE:
            shown[last // 2] = "middle"
    else:
        every = -(-len(drawn.names) // MOST_NAMES)
        shown = dict.fromkeys(range(0, len(drawn.names), every), "middle")
    return together(
        element("text", drawn.names[place], x=percent(_at(drawn, place)), y="70%", text_anchor=anchor, class_="tick")
        for place, anchor in sorted(shown.items())
    )
