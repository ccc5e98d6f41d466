"""Device memory is taken from the driver on usual steps, and what the first steps of a trace do besides training."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from perfaudit.trace import runtime_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.warm_up import warm_up_steps
from perfaudit.trace.words import a_step, milliseconds, percent, times_a_step

RULES = ("PA906", "PA908")
MANY = 30  # calls of the driver; a set-up has fewer
OF_ALL = 0.3  # of the tensors that are made; so many calls of the driver mean that no memory is kept


def look(view: DeviceView) -> Iterator[Seen]:
    warm_up = warm_up_steps(view.recording, view.steps)
    usual_start = view.steps[warm_up].start if warm_up else view.set_up_end
    if not view.steps and view.set_up_end > view.start:
        yield _set_up(view)
    if warm_up:
        lengths = [step.end - step.start for step in view.steps]
        usual = statistics.median(lengths[warm_up:])
        extra = sum(lengths[:warm_up]) - warm_up * usual
        number = f"the first {warm_up} of {len(lengths)} steps" if warm_up > 1 else f"the first of {len(lengths)} steps"
        yield Seen(
            "PA908",
            f"{number} {'are' if warm_up > 1 else 'is'} warm-up: memory, kernels or compiled code are prepared, which takes "
            f"{milliseconds(extra)} longer than usual steps ({milliseconds(usual)} each)",
            extra,
        )
    lost = sum(one.end - one.start for one in view.idle if one.cause == "allocation" and one.start >= usual_start)
    calls = view.recording.calls
    rows = [row for row in view.calls("allocation") if calls.start[row] >= usual_start]
    if not lost or not _is_usual(view, rows, warm_up):
        return
    taking = [row for row in rows if runtime_names.is_device_memory(view.recording.names[calls.name[row]])]
    names = sorted({view.recording.names[calls.name[row]] for row in rows})
    why = (
        "the allocator keeps no memory"
        if _keeps_nothing(view, taking, usual_start)
        else "memory is taken and given back again"
    )
    at = sorted(rows, key=lambda row: calls.start[row] - calls.end[row])
    yield Seen(
        "PA906",
        f"{why} ({', '.join(f'`{name}`' for name in names[:3])}, {times_a_step(view, len(rows), warm_up)}): the device is idle "
        f"for {percent(view, lost)} of the time ({a_step(view, lost, warm_up)})",
        lost,
        tuple(Instant(calls.start[row], calls.thread[row]) for row in at[:200]),
    )


def _set_up(view: DeviceView) -> Seen:
    """Of a trace without steps: what a program does once, at its start."""
    calls = view.recording.calls
    early = [row for row in view.set_up_calls if calls.start[row] < view.set_up_end]
    taking = sum(runtime_names.is_device_memory(view.recording.names[calls.name[row]]) for row in early)
    lost = sum(one.end - one.start for one in view.idle if one.start < view.set_up_end and one.cause != "data")
    others = len(early) - taking
    words = [f"memory is taken {'once' if taking == 1 else f'{taking:,} times'}"] if taking else []
    words += (
        [f"{others:,} calls load code or create something" if others > 1 else "a call loads code or creates something"]
        if others
        else []
    )
    return Seen(
        "PA908",
        f"set-up is inside the trace, until {milliseconds(view.set_up_end - view.start)} after its first work: "
        f"{' and '.join(words)}, and the device is idle meanwhile for {percent(view, lost)} of the time ({milliseconds(lost)})",
        lost,
    )


def _is_usual(view: DeviceView, rows: list[int], warm_up: int) -> bool:
    """Whether these calls go on as the training does: in most usual steps, or very often where no steps tell."""
    usual = view.steps[warm_up:]
    if len(rows) >= MANY or len(usual) < 2:
        return len(rows) >= MANY
    calls = view.recording.calls
    with_calls = sum(any(step.start <= calls.start[row] < step.end for row in rows) for step in usual)
    return with_calls > len(usual) / 2


def _keeps_nothing(view: DeviceView, taking: list[int], start: float) -> bool:
    """Whether about every tensor is made of memory that the driver gives."""
    operators, names = view.recording.operators, view.recording.names
    makes = [name in ("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::resize_") for name in names]
    made = sum(makes[operators.name[row]] and start <= operators.start[row] < view.end for row in range(len(operators)))
    return len(taking) >= MANY and made > 0 and len(taking) >= OF_ALL * made
