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
MOST_FINDINGS = 500
# What must not stand as it is in a script element, or a terminal or the log of a CI would obey; all of it in texts only.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\x7f": "\\u007f", "##": "#\\u0023"}


def data_element(report: Report, room: int) -> tuple[Markup, tuple[str, ...]]:
    """A script element with the report as data, of `room` bytes at most, and what was left out of it."""
    left: list[str] = []
    traces = report.traces
    is_vast = traces is not None and STRETCH * sum(len(rank.timeline) for rank in traces.ranks) > room
    text = None if is_vast else _data(report, left)  # it would take seconds only to be thrown away
    for what, smaller in _STEPS.items():
        if text is not None and len(text) <= room:
            return text, tuple(left)
        without = smaller(report)
        if without != report:
            report = without
            left.append(what)
            text = _data(report, left)
    if text is not None and len(text) <= room:
        return text, tuple(left)
    return json_element({"left_out": ["everything"]}), ("everything",)


Step = Callable[[Report], Report]


def _of_traces(smaller: Callable[[Traces], Traces]) -> Step:
    return lambda report: report.with_(traces=smaller(report.traces)) if report.traces is not None else report


def _of_ranks(**changes: Any) -> Step:  # Any: one type per field
    return _of_traces(lambda traces: replace(traces, ranks=tuple(replace(rank, **changes) for rank in traces.ranks)))


def _without_samples(report: Report) -> Report:
    return report.with_(trials=tuple(replace(trial, samples=()) for trial in report.trials))


def _without_patches(report: Report) -> Report:
    return report.with_(
        findings=tuple(f.with_(fix=f.fix and replace(f.fix, edits=(), diff="")) for f in report.findings)
    )


_STEPS: dict[str, Step] = {
    "timelines": _of_ranks(timeline=()),
    "waits": _of_traces(lambda traces: replace(traces, waits=CollectiveWaits())),
    "kernels": _of_ranks(kernels=()),
    "where idle time lies": _of_ranks(where=()),
    f"ranks after the first {MOST_RANKS}": _of_traces(lambda traces: replace(traces, ranks=traces.ranks[:MOST_RANKS])),
    "blocks of trials": _without_samples,
    "patches of findings": _without_patches,
    f"findings after the first {MOST_FINDINGS}": lambda report: report.with_(findings=report.findings[:MOST_FINDINGS]),
}


def _data(report: Report, left: list[str]) -> Markup:
    return json_element({**to_json(report), **({"left_out": left} if left else {})})


def json_element(data: dict[str, Any]) -> Markup:  # Any: nested JSON
    """A script element with data, in which nothing ends it, and which no log obeys."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign, escape in _ESCAPES.items():
        text = text.replace(sign, escape)
    return element("script", Markup(text), type="application/json", id="report")
