"""Waiting at collectives as a map, rank by collective: a table whose cells are coloured and hold their numbers."""

from __future__ import annotations

import itertools

from perfaudit.render.html.markup import Markup, element, table, together
from perfaudit.render.html.style import WAITS
from perfaudit.render.html.trace_ranks import choose_ranks, left_out_sentence
from perfaudit.render.words import step_time
from perfaudit.traces import CollectiveWaits, Traces

MOST_RANKS = 64
MOST_COLUMNS = 20  # more collectives are put together, one after the other
Columns = list[tuple[int, int]]


def waits_map(traces: Traces) -> Markup:
    """The map with what its colours and columns mean; nothing where nobody waits."""
    waits = traces.waits
    columns = _columns(len(waits.names))
    cells = {rank: _sum_columns(row, columns) for rank, row in zip(waits.ranks, waits.seconds, strict=True)}
    most = max((value for row in cells.values() for value in row), default=0.0)
    if most <= 0:
        return Markup()
    of_rank = {rank.rank: rank for rank in traces.ranks if rank.rank is not None and rank.rank in cells}
    shown = [rank.rank for rank in choose_ranks(list(of_rank.values()), traces, MOST_RANKS)]
    unit, name = (1e6, "µs") if most < 1e-3 else (1e3, "ms")
    rows = [
        [f"rank {rank}", *(_cell(value, most, unit) for value in cells[rank]), _figure(sum(cells[rank]), most, unit)]
        for rank in shown
        if rank is not None
    ]
    caption = f"Waiting for the last rank, {name}; the longest is {step_time(most)}"
    headings = ("rank", *(_heading(waits, first, last) for first, last in columns), "sum")
    said = (
        "A rank that waits for others has large numbers in its row. Where all others wait and one does not, that one comes late. "
        "These are the collectives with the most waiting, in the order of time."
    )
    return together(
        element("p", said, class_="dim"),
        table(caption, headings, rows, class_="map"),
        _legend(most),
        left_out_sentence(len(shown), len(waits.ranks)),
    )


def _columns(collectives: int) -> Columns:
    """From and to which collective each column goes, as even as can be."""
    number = min(collectives, MOST_COLUMNS)
    edges = [index * collectives // number for index in range(number + 1)] if number else []
    return [(first, last - 1) for first, last in itertools.pairwise(edges)]


def _sum_columns(row: tuple[float, ...], columns: Columns) -> list[float]:
    return [sum(row[first : last + 1]) for first, last in columns]


def _cell(value: float, most: float, unit: float) -> Markup:
    return element("td", _figure(value, most, unit), class_=f"wait{_class(value, most)}")


def _figure(value: float, most: float, unit: float) -> str:
    """With as many digits as the largest needs to have two or three, so that columns can be read down."""
    digits = 2 if unit * most < 10 else 1 if unit * most < 100 else 0
    return f"{unit * value:.{digits}f}"


def _class(value: float, most: float) -> int:
    """0 for less than a twentieth of the longest, WAITS for the longest."""
    return 0 if value < most / 20 else min(WAITS, 1 + int(WAITS * value / most))


def _heading(waits: CollectiveWaits, first: int, last: int) -> str:
    names = list(dict.fromkeys(waits.names[first : last + 1]))
    number = str(first + 1) if first == last else f"{first + 1} to {last + 1}"
    return f"{number} {names[0][:24].replace('_', ' ')}" + (" and others" if len(names) > 1 else "")


def _legend(most: float) -> Markup:
    steps = ", ".join(step_time(most * number / WAITS) for number in range(1, WAITS))
    return element("p", f"The shade of a cell changes at {step_time(most / 20)}, {steps}.", class_="dim")
