"""Pictures as SVG whose places are shares of its width: a page of any width has them, and their words have one size.

A row is a name, a picture and its figures in words, which is what a screen reader says of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from perfaudit.render.html.markup import Markup, Part, element, together

TICKS = 5  # about so many of an axis
BAR = 16  # pixels that a bar is high
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
# How a value is marked: by shape as well as by colour, so that nobody has to tell colours apart. Drawn around 0, 0.
_SHAPES = {
    "faster": "M-5.5 0A5.5 5.5 0 1 0 5.5 0A5.5 5.5 0 1 0 -5.5 0Z",
    "slower": "M-5 -5H5V5H-5Z",
    "undecided": "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0 -4.5 0Z",
    "control": "M-6 0L0 -6L6 0L0 6Z",
    "plain": "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0 -4.5 0Z",
}


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from low to high, and what is written at its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    text: Callable[[float], str]

    def at(self, value: float) -> float:
        """Where a value lies, in percent of the width; at the edge where it lies outside."""
        share = (value - self.low) / (self.high - self.low)
        return 100 * min(max(share, 0.0), 1.0)

    def has(self, value: float) -> bool:
        return self.low <= value <= self.high


def axis_over(values: Iterable[float], text: Callable[[float], str], margin: float = 0.04) -> Axis:
    """An axis that holds these values, with a margin on both sides that is a share of it, and round numbers as ticks."""
    known = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    width = (high - low) or abs(high) or 1.0
    low, high = low - margin * width, high + margin * width
    return Axis(low, high, ticks_between(low, high), text)


def axis_from_zero(high: float, text: Callable[[float], str], margin: float = 0.02) -> Axis:
    """An axis from 0 to a little more than the highest value."""
    high = (1 + margin) * high if high > 0 else 1.0
    return Axis(0.0, high, ticks_between(0.0, high), text)


def unit_of_bytes(most: float) -> tuple[int, str]:
    """In which unit sizes up to this one are drawn, so that their numbers are round: bytes of it, and its name."""
    return next((unit, name) for unit, name in _SIZES if most >= unit or unit == 1)


def ticks_between(low: float, high: float) -> tuple[float, ...]:
    """Round numbers from low to high, about so many."""
    least = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * nice for nice in _NICE if power * nice >= least * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(round(index * step, 12) for index in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """A value with its interval; low and high are None where none is known. kind: a key of the shapes."""

    name: Part
    figures: Part
    kind: str = "plain"
    middle: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class BarRow:
    """A bar from one value to another. kind: a class of the style."""

    name: Part
    figures: Part
    start: float
    end: float
    kind: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Band:
    """Values that a picture has in the background, such as what is tolerated. kind: a class of the style."""

    low: float
    high: float
    kind: str


def intervals(
    rows: Sequence[IntervalRow], axis: Axis, label: str, base: float | None = None, bands: Sequence[Band] = ()
) -> Markup:
    """The rows one below the other on one axis; a line at `base`, with which all are compared."""
    back = _background(axis, base, bands)
    items = [_row(row.name, (back, _interval(row, axis)), row.figures) for row in rows]
    return element("ul", items, _scale(axis), class_="rows", aria_label=label)


def bars(rows: Sequence[BarRow], axis: Axis, label: str, base: float | None = None) -> Markup:
    """Bars one below the other on one axis."""
    back = _background(axis, base, ())
    items = [_row(row.name, (back, _bar(row, axis)), row.figures) for row in rows]
    return element("ul", items, _scale(axis), class_="rows", aria_label=label)


def _row(name: Part, picture: Part, figures: Part) -> Markup:
    drawn = element("svg", picture, aria_hidden="true", focusable="false")
    return element("li", element("span", name, class_="name"), drawn, element("span", figures, class_="figures"))


def _background(axis: Axis, base: float | None, bands: Sequence[Band]) -> Markup:
    parts = [
        element("rect", x=percent(axis.at(band.low)), width=percent(axis.at(band.high) - axis.at(band.low)), height="100%",
                class_=f"band-{band.kind}")
        for band in bands
    ]  # fmt: skip
    parts += [upright(axis.at(tick), "grid") for tick in axis.ticks]
    if base is not None and axis.has(base):
        parts.append(upright(axis.at(base), "base"))
    return together(parts)


def _interval(row: IntervalRow, axis: Axis) -> Markup:
    parts: list[Part] = []
    if row.low is not None and row.high is not None:
        parts.append(level(axis.at(row.low), axis.at(row.high), 50.0, f"whisker {row.kind}"))
        parts += [
            element(
                "line",
                x1=percent(axis.at(end)),
                x2=percent(axis.at(end)),
                y1="30%",
                y2="70%",
                class_=f"whisker {row.kind}",
            )
            for end in (row.low, row.high)
            if axis.has(end)
        ]
    if row.middle is None:
        return together(parts)
    if axis.has(row.middle):
        parts.append(marker(axis.at(row.middle), 50.0, row.kind))
    else:
        parts.append(beyond(axis.at(row.middle) > 50, row.kind))
    return together(parts)


def _bar(row: BarRow, axis: Axis) -> Markup:
    left, right = sorted((axis.at(row.start), axis.at(row.end)))
    wide = percent(max(right - left, 0.15))
    bar = element(
        "rect",
        x=percent(left),
        y="50%",
        width=wide,
        height=BAR,
        transform=f"translate(0 {-BAR / 2})",
        class_=f"bar {row.kind}",
    )
    parts = [bar]
    if row.low is not None and row.high is not None:
        ends = axis.at(row.low), axis.at(row.high)
        parts += [level(*ends, 50.0, "whisker under"), level(*ends, 50.0, "whisker over")]
    return together(parts)


def _scale(axis: Axis) -> Markup:
    """The numbers below the rows; the figures of each row say them, too."""
    drawn = element("svg", scale_texts(axis), class_="ticks")
    return element("li", element("span", class_="name"), drawn, element("span", class_="figures"), class_="scale",
                   aria_hidden="true")  # fmt: skip


def scale_texts(axis: Axis) -> Markup:
    """The numbers of an axis from left to right, in the middle of their height; those at the edges do not leave it."""
    return together(
        element(
            "text", axis.text(tick) if tick else "0", x=percent(axis.at(tick)), y="70%", class_="tick",
            text_anchor="start" if axis.at(tick) < 6 else "end" if axis.at(tick) > 94 else "middle",
        )
        for tick in axis.ticks
    )  # fmt: skip


def marker(x: float, y: float, kind: str) -> Markup:
    """The sign of a value at a place in percent."""
    sign = element("path", d=_SHAPES.get(kind, _SHAPES["plain"]), class_=f"sign {kind}")
    return element("svg", sign, x=percent(x), y=percent(y), class_="at")


def beyond(is_right: bool, kind: str) -> Markup:
    """An arrow at the edge, for a value that lies outside."""
    shape = "M-10 -5L-1 0L-10 5Z" if is_right else "M10 -5L1 0L10 5Z"
    return element(
        "svg", element("path", d=shape, class_=f"sign {kind}"), x="100%" if is_right else "0%", y="50%", class_="at"
    )


def legend(kinds: Iterable[tuple[str, str]]) -> Markup:
    """What the signs mean: a kind and its words."""
    items = (
        element("li", element("svg", marker(50, 50, kind), aria_hidden="true", focusable="false"), said)
        for kind, said in kinds
    )
    return element("ul", items, class_="legend", aria_label="Legend")


def upright(x: float, class_: str) -> Markup:
    """A line from top to bottom at a place in percent."""
    return element("line", x1=percent(x), x2=percent(x), y1="0%", y2="100%", class_=class_)


def level(x1: float, x2: float, y: float, class_: str) -> Markup:
    """A line from left to right."""
    return element("line", x1=percent(x1), x2=percent(x2), y1=percent(y), y2=percent(y), class_=class_)


def percent(value: float) -> str:
    """A place in a picture: "12.5%"."""
    return f"{value:.2f}".rstrip("0").rstrip(".") + "%"
