"""The report's JSON inside of an HTML page: all of it where there is room, else without what is largest, and it says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perfaudit.render.html.markup import Markup, element
from perfaudit.report import Report, to_json
from perfaudit.traces import CollectiveWaits, Traces

STRETCH = 30  # bytes that a stretch of a timeline has at least as JSON
MOST_RANKS = 256
# What must not stand as it is in a script element, or a terminal or the log of a CI would obey; all of it in texts only.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\x7f": "\\u007f", "##": "#\\u0023"}


def data_element(report: Report, room: int) -> tuple[Markup, tuple[str, ...]]:
    """A script element with the report as data, of `room` bytes at most, and what was left out of it."""
    left: list[str] = []
    traces = report.traces
    is_vast = traces is not None and STRETCH * sum(len(rank.timeline) for rank in traces.ranks) > room
    text = None if is_vast else _data(report, left)  # it would take seconds only to be thrown away
    for what, smaller in _STEPS.items():
        if traces is None or (text is not None and len(text) <= room):
            break
        traces = smaller(traces)
        left.append(what)
        text = _data(report.with_(traces=traces), left)
    if text is not None and len(text) <= room:
        return text, tuple(left)
    return _script({"left_out": ["everything"]}), ("everything",)


def _of_ranks(**changes: Any) -> Callable[[Traces], Traces]:  # Any: one type per field
    return lambda traces: replace(traces, ranks=tuple(replace(rank, **changes) for rank in traces.ranks))


_STEPS: dict[str, Callable[[Traces], Traces]] = {
    "timelines": _of_ranks(timeline=()),
    "waits": lambda traces: replace(traces, waits=CollectiveWaits()),
    "kernels": _of_ranks(kernels=()),
    "where idle time lies": _of_ranks(where=()),
    f"ranks after the first {MOST_RANKS}": lambda traces: replace(traces, ranks=traces.ranks[:MOST_RANKS]),
}


def _data(report: Report, left: list[str]) -> Markup:
    return _script({**to_json(report), **({"left_out": left} if left else {})})


def _script(data: dict[str, Any]) -> Markup:  # Any: nested JSON
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign, escape in _ESCAPES.items():
        text = text.replace(sign, escape)
    return element("script", Markup(text), type="application/json", id="report")
