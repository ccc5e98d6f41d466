"""What the first steps of a trace, or the start of a program without marked steps, do besides training."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from perfaudit.trace import runtime_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.intervals import intersection, total, union
from perfaudit.trace.set_up import MANY_LATER, loading_calls, set_up_calls
from perfaudit.trace.warm_up import set_up_of
from perfaudit.trace.words import milliseconds, percent

RULES = ("PA908",)


def look(view: DeviceView) -> Iterator[Seen]:
    whole = view.whole
    if whole.usual is not whole:
        yield _warm_up(whole) if whole.steps else _set_up(whole)
    if whole.steps and (seen := _loading(whole.usual)) is not None:
        yield seen


def _loading(usual: DeviceView) -> Seen | None:
    """On usual steps, or in the only one: code is loaded when it is needed for the first time."""
    rows = loading_calls(usual)
    if not rows or len(rows) >= MANY_LATER:
        return None
    calls, names = usual.recording.calls, usual.recording.names
    loading = union((calls.start[row], calls.end[row]) for row in rows)
    lost = total(intersection(loading, union((one.start, one.end) for one in usual.idle)))
    longest = max(rows, key=lambda row: calls.end[row] - calls.start[row])
    which = "a call loads" if len(rows) == 1 else f"{len(rows)} calls load"
    return Seen(
        "PA908",
        f"{which} code or create{'s' * (len(rows) == 1)} something on first use (`{names[calls.name[longest]]}` takes "
        f"{milliseconds(calls.end[longest] - calls.start[longest])}): the device is idle meanwhile for "
        f"{percent(usual, lost)} of the time ({milliseconds(lost)})",
        lost,
        tuple(Instant(calls.start[row], calls.thread[row], calls.end[row] - calls.start[row]) for row in rows),
        recurring=0.0,
    )


def _warm_up(whole: DeviceView) -> Seen:
    """Of the first steps: what they take longer than the others on the host, for which the device is idle meanwhile."""
    lengths = [step.end - step.start for step in whole.steps]
    number = len(lengths) - len(whole.usual.steps)
    usual = statistics.median(lengths[number:])
    extra = sum(lengths[:number]) - number * usual
    each = whole.usual.step_times.microseconds or usual  # the host may run ahead: its steps tell less
    which = f"the first {number} of {len(lengths)} steps are" if number > 1 else f"the first of {len(lengths)} steps is"
    sets_up = set_up_of(whole.recording).is_in(whole.steps[0])
    what = "memory, kernels or compiled code are prepared" if sets_up else "the loader starts"
    return Seen(
        "PA908",
        f"{which} warm-up: {what}. {'Together they take' if number > 1 else 'It takes'} {milliseconds(extra)} longer than "
        f"{'as many usual steps' if number > 1 else 'a usual step'} ({milliseconds(each)}{' each' if number > 1 else ''})",
        extra,
        recurring=0.0,
    )


def _set_up(whole: DeviceView) -> Seen:
    """Of a trace without steps: what a program does once, at its start."""
    calls, end = whole.recording.calls, whole.usual.start
    early = [row for row in set_up_calls(whole) if calls.start[row] < end]
    taking = sum(runtime_names.is_device_memory(whole.recording.names[calls.name[row]]) for row in early)
    lost = sum(one.end - one.start for one in whole.idle if one.start < end and one.cause != "data")
    others = len(early) - taking
    words = [f"the driver is asked for memory {'once' if taking == 1 else f'{taking:,} times'}"] if taking else []
    words += (
        [f"{others:,} calls load code or create something" if others > 1 else "a call loads code or creates something"]
        if others
        else []
    )
    return Seen(
        "PA908",
        f"the set-up of the program is inside the trace, until {milliseconds(end - whole.start)} after the device's first work: "
        f"{', and '.join(words)}. The device is idle meanwhile for {percent(whole, lost)} of the time ({milliseconds(lost)})",
        lost,
        recurring=0.0,
    )
