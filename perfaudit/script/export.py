"""The steps of a run as a trace that chrome://tracing and Perfetto open. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfaudit.runs import PHASE_WORDS
from perfaudit.script.rhythm import find_rounds
from perfaudit.script.spans import PHASES
from perfaudit.script.tally import samples_of

Json = dict[str, Any]  # Any: nested JSON
_STEPS, _PHASES = 1, 2  # rows of the trace


def chrome_trace(updates: Sequence[Json], script: str, setup: float = 0.0) -> Json:
    """Trace events of the updates that `watch.Watch` records: a row of steps, and below it a row of their phases.

    Of each update the sums by phase are known, not when each began: phases stand one behind the other, in the order of a step.
    setup: seconds before the first update, an event of their own. Times are microseconds since the setup began. Format: Trace
    Event Format, "Complete events".
    """
    rhythm = find_rounds([update["optimizer"] for update in updates])
    begins = [setup]
    for update in updates:
        begins.append(begins[-1] + update["seconds"])
    events = [_name(_STEPS, "steps"), _name(_PHASES, "phases, in the order of a step")]
    if setup > 0 and updates:
        events.append(_event(_STEPS, "setup", 0.0, setup))
    events += [
        _event(
            _STEPS,
            f"step {number}",
            begins[first],
            begins[behind],
            {"samples": samples_of(updates[first:behind], rhythm.optimizers)},
        )
        for number, (first, behind) in enumerate(rhythm.steps, start=1)
    ]
    for begin, update in zip(begins, updates, strict=False):
        at = begin
        for name, seconds in zip(PHASES, update["phases"], strict=True):
            if seconds > 0:
                events.append(_event(_PHASES, PHASE_WORDS[name], at, at + seconds))
                at += seconds
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"script": script}}


def _name(row: int, words: str) -> Json:
    return {"ph": "M", "pid": 1, "tid": row, "name": "thread_name", "args": {"name": words}}


def _event(row: int, name: str, begin: float, end: float, args: Json | None = None) -> Json:
    return {
        "ph": "X", "pid": 1, "tid": row, "name": name, "ts": round(begin * 1e6, 1), "dur": round((end - begin) * 1e6, 1),
        "args": args or {},
    }  # fmt: skip
