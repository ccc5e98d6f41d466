"""Broadcasts with which DistributedDataParallel gives all ranks the buffers of the first before each forward pass."""

from __future__ import annotations

import re
from bisect import bisect_right

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant, around
from perfaudit.trace.recurrence import are_few

_FORWARD = re.compile(r"^DistributedDataParallel\.forward$|_sync_(module_)?buffers$|distributed_broadcast_coalesced$")
LEAST = 3  # in a trace without marked steps


def buffer_broadcasts(view: DeviceView) -> list[int]:
    """The rows of such broadcasts, where most steps have them; [] else. What `DistributedDataParallel()` does once is none."""
    calls, of = view.recording.calls, view.launches.of
    rows = [row for row, operation in view.operations.items() if operation == "broadcast" and row in of]
    if not rows:
        return []
    at = {row: Instant(calls.start[of[row]], calls.thread[of[row]]) for row in rows}
    marks = [bool(_FORWARD.search(name)) for name in view.recording.names]
    inside = []
    for spans in (view.recording.annotations, view.recording.operators, view.recording.frames):
        stacks = around(spans, at.values()) if len(spans) else {}
        inside += [row for row in rows if any(marks[spans.name[one]] for one in stacks.get(at[row], []))]
    found = sorted(set(inside))
    if not view.steps:
        return found if len(found) >= LEAST else []
    starts = [step.start for step in view.steps]
    having = len({bisect_right(starts, at[row].time) for row in found})
    return found if having == len(view.steps) or (having and not are_few(having, len(view.steps))) else []
