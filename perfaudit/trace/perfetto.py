"""A trace of one step, cut out of the file of one rank, for ui.perfetto.dev and chrome://tracing: its events, with the
arguments that are kept of them, and a row that says why the device was idle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.job import EXPORT_OF
from perfaudit.trace.read import read_trace
from perfaudit.trace.recording import KINDS, Recording, Spans
from perfaudit.trace.steps import steps_of
from perfaudit.trace.timeline import median_step
from perfaudit.trace.trace_files import TraceFile
from perfaudit.trace.views import views_of
from perfaudit.traces import SHARE_WORDS

MOST_EVENTS = 200_000  # of a step; a browser opens so many
_HOST, _IDLE = 1_000_000, 1_000_001  # process numbers that no device has
_CATEGORIES = {"compute": "kernel", "communication": "kernel", "memory": "gpu_memcpy"}
Event = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class TrimmedTrace:
    """The text of a trace; step: the number of its step, None for the whole window; left_out: events that were too many."""

    text: str
    step: int | None
    left_out: int


def trimmed_trace(
    file: TraceFile, window: tuple[int, int] | None = None, number: int | None = None
) -> TrimmedTrace | None:
    """The step of this number, else the one nearest to the median; None without work of a device. Raises NotReadable."""
    recording = read_trace(file, window)
    steps = steps_of(recording, window)
    views = views_of(recording, steps)
    if not views:
        return None
    step = next((one for one in steps if one.number == number), median_step(steps)) if steps else None
    start = step.start if step else min(view.start for view in views)
    end = step.end if step else max(view.end for view in views)
    events = sorted(_events(views, start, end), key=lambda event: float(event["ts"]))
    kept = events[:MOST_EVENTS]
    head = {
        "displayTimeUnit": "ms",
        "traceName": recording.file,
        EXPORT_OF: recording.file,
        "distributedInfo": {"rank": recording.rank},
        "deviceProperties": _properties(recording),
    }
    text = json.dumps({**head, "traceEvents": [*_labels(views), *kept]})
    return TrimmedTrace(f"{text}\n", step.number if step else None, len(events) - len(kept))


def _properties(recording: Recording) -> list[dict[str, Any]]:  # Any: JSON
    found = []
    for device in sorted({*recording.device_names, *recording.capabilities}):
        major, minor = recording.capabilities.get(device, (None, None))
        name = recording.device_names.get(device, "")
        found.append({"id": device, "name": name, "computeMajor": major, "computeMinor": minor})
    return found


def _labels(views: list[DeviceView]) -> Iterator[Event]:
    recording = views[0].recording
    rank = "" if recording.rank is None else f"rank {recording.rank}, "
    processes = {_HOST: "host", _IDLE: "why devices were idle"}
    processes |= {view.device: f"{recording.device_kind}:{view.device}" for view in views}
    for number, name in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"{rank}{name}"}}
    for number, (_, thread) in enumerate(recording.threads):
        yield {"ph": "M", "name": "thread_name", "pid": _HOST, "tid": number, "args": {"name": f"thread {thread}"}}
    for view in views:
        name = f"{recording.device_kind}:{view.device}"
        yield {"ph": "M", "name": "thread_name", "pid": _IDLE, "tid": view.device, "args": {"name": name}}


def _events(views: list[DeviceView], start: float, end: float) -> Iterator[Event]:
    """What the host did in the step, what it launched there, and idle stretches until the last of that has ended."""
    recording = views[0].recording
    for category, spans in (
        ("cpu_op", recording.operators),
        ("user_annotation", recording.annotations),
        ("python_function", recording.frames),
        ("cuda_runtime", recording.calls),
    ):
        yield from _of_host(recording.names, category, spans, start, end)
    for view in views:
        yield from _of_device(view, start, end)


def _of_host(names: list[str], category: str, spans: Spans, start: float, end: float) -> Iterator[Event]:
    for row in range(len(spans)):
        if spans.end[row] > start and spans.start[row] < end:
            # What reaches beyond the step is cut at its edges: the loop around it, an operator of the profiler.
            begun, ended = max(start, spans.start[row]), min(end, spans.end[row])
            event = _event(category, names[spans.name[row]], _HOST, spans.thread[row], begun, ended)
            if category == "cuda_runtime":
                event["args"] = {"correlation": spans.correlation[row]}
            yield event


def _of_device(view: DeviceView, start: float, end: float) -> Iterator[Event]:
    work, calls = view.recording.work, view.recording.calls
    until = end
    for row in view.rows:
        call = view.launches.of.get(row)
        began = work.start[row] if call is None else calls.start[call]
        if not start <= began < end:
            continue
        until = max(until, work.end[row])
        category = _CATEGORIES[KINDS[work.kind[row]]]
        event = _event(category, view.name_of(row), view.device, work.stream[row], work.start[row], work.end[row])
        event["args"] = {"device": view.device, "stream": work.stream[row], "correlation": work.correlation[row]}
        if work.bytes[row] >= 0:
            event["args"]["bytes"] = work.bytes[row]
        yield event
        if call is not None:  # the arrow from the call to what it launched
            arrow = {"cat": "ac2g", "name": "ac2g", "id": row}
            yield {**arrow, "ph": "s", "pid": _HOST, "tid": calls.thread[call], "ts": calls.start[call]}
            yield {**arrow, "ph": "f", "bp": "e", "pid": view.device, "tid": work.stream[row], "ts": work.start[row]}
    for one in view.idle:
        if one.end > start and one.start < until:
            name = SHARE_WORDS[f"idle_{one.cause}"]
            yield _event("idle", name, _IDLE, view.device, max(one.start, start), min(one.end, until))


def _event(category: str, name: str, process: int, thread: int, start: float, end: float) -> Event:
    """Times are microseconds since the first event of the file."""
    times = {"ts": round(start, 3), "dur": round(end - start, 3)}
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, **times}
