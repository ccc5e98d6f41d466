"""A bar of 100 % for each rank, with patterns beside colours, and the same figures as a table."""

from __future__ import annotations

from perfaudit.render.html.markup import Markup, element, table, together
from perfaudit.render.html.style import KINDS
from perfaudit.render.html.trace_ranks import choose_ranks, label, left_out_sentence, share
from perfaudit.traces import SHARE_WORDS, RankTrace, Traces

MOST_BARS = 64
LEAST = 0.005  # of the time; less is neither named nor has a column

# What is drawn over the colour of a tile of 8 by 8, a path for each kind; "" is a plain colour.
_MARKS = {
    "compute": "",
    "communication_exposed": "M-2 10L10 -2M-2 2L2 -2M6 10L10 6",
    "memory_exposed": "M0 4H8M4 0V8",
    "idle_data": "M4 0V8",
    "idle_sync": "M0 4H8",
    "idle_allocation": "M0 0L8 8M0 8L8 0",
    "idle_launch": "M-2 -2L10 10M6 -2L10 2M-2 6L2 10",
    "idle_other": "M2 2h1.6M6 6h1.6",
}


def patterns() -> Markup:
    """The patterns that the whole page draws with, one for each use of time."""
    tiles = (
        element(
            "pattern",
            element("rect", width="8", height="8", class_=f"base-{kind}"),
            element("path", d=_MARKS[kind], class_="mark") if _MARKS[kind] else "",
            id=f"pattern-{kind}",
            width="8",
            height="8",
            patternUnits="userSpaceOnUse",
        )
        for kind in KINDS
    )
    return element("svg", element("defs", tiles), class_="defs", aria_hidden="true", focusable="false")


def bars(traces: Traces) -> Markup:
    """The bars with their legend; below them, folded, the table."""
    ranks = tuple(rank for rank in traces.ranks if rank.has_device)
    shown = choose_ranks(ranks, traces, MOST_BARS)
    used = [name for name in SHARE_WORDS if any(rank.shares[name] >= LEAST for rank in ranks)]
    if not shown:
        return element("p", "The trace has no work of a device, so nothing is known about the device.")
    figure = element(
        "figure",
        element("ul", (_legend(name) for name in used), class_="legend", aria_label="Legend"),
        element("ul", (_bar(rank, used) for rank in shown), class_="bars", aria_label="Shares of each device's time"),
    )
    rows = [[label(rank), *(share(rank.shares[name], 1) for name in SHARE_WORDS)] for rank in shown]
    numbers = table("Shares of the window", ("device", *SHARE_WORDS.values()), rows)
    folded = element("details", element("summary", "The same as a table"), numbers)
    return together(figure, left_out_sentence(len(shown), len(ranks)), folded)


def _legend(name: str) -> Markup:
    sample = element("svg", element("rect", class_=name), aria_hidden="true", focusable="false")
    return element("li", sample, SHARE_WORDS[name])


def _bar(rank: RankTrace, used: list[str]) -> Markup:
    """The name, the bar, and its figures in words, which is what a screen reader says of it."""
    at = 0.0
    parts = []
    for name in SHARE_WORDS:
        width = rank.shares[name]
        if width > 0:
            parts.append(element("rect", x=f"{100 * at:.2f}%", width=f"{100 * width:.2f}%", class_=name))
        at += width
    figures = ", ".join(
        f"{SHARE_WORDS[name]} {share(rank.shares[name])}" for name in used if rank.shares[name] >= LEAST
    )
    picture = element("svg", parts, aria_hidden="true", focusable="false")
    return element("li", label(rank), picture, element("span", figures, class_="figures"))
