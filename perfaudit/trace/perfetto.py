"""One step of each rank as a small trace: what the device did and why it was idle, for ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

import json
from typing import Any

from perfaudit.report import Report
from perfaudit.traces import SHARE_WORDS


def step_as_trace(report: Report) -> str | None:
    """The step that the report draws, of each rank; None without one."""
    traces = report.traces
    if traces is None or not any(rank.timeline for rank in traces.ranks):
        return None
    events: list[dict[str, Any]] = []  # Any: JSON
    for number, rank in enumerate(traces.ranks):
        pid = rank.rank if rank.rank is not None else number
        name = f"rank {rank.rank}" if rank.rank is not None else rank.file
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"{name}, {rank.device}"}})
        for row, label in ((0, "device"), (1, "idle, by cause")):
            events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": row, "args": {"name": label}})
        events += [
            {
                "ph": "X",
                "cat": one.kind,
                "name": SHARE_WORDS[one.kind],
                "pid": pid,
                "tid": int(one.kind.startswith("idle_")),
                "ts": 1e6 * one.start,
                "dur": 1e6 * (one.end - one.start),
            }
            for one in rank.timeline
        ]
    head = {"displayTimeUnit": "ms", "perfaudit": {"findings": [finding.message for finding in report.findings]}}
    return json.dumps({**head, "traceEvents": events}) + "\n"
