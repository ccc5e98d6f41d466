"""Device memory is taken from the driver on usual steps."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.trace import runtime_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.intervals import intersection, total, union
from perfaudit.trace.words import a_step, called_a_step, percent

RULES = ("PA906",)
MANY = 30  # calls of the driver; a set-up has fewer
OF_ALL = 0.3  # of the tensors that are made; so many calls of the driver mean that no memory is kept


def look(view: DeviceView) -> Iterator[Seen]:
    calls = view.recording.calls
    rows = [row for row in view.calls("allocation") if calls.start[row] >= view.host_start]
    lost = sum(one.end - one.start for one in view.idle if one.cause == "allocation") + _behind_waits(view, rows)
    if not lost or not _is_usual(view, rows):
        return
    taking = [row for row in rows if runtime_names.is_device_memory(view.recording.names[calls.name[row]])]
    names = sorted({view.recording.names[calls.name[row]] for row in rows})
    why = (
        "the allocator keeps no memory"
        if _keeps_nothing(view, taking)
        else "the allocator takes memory from the driver and gives it back again"
    )
    at = sorted(rows, key=lambda row: calls.start[row] - calls.end[row])
    yield Seen(
        "PA906",
        f"{why} ({', '.join(f'`{name}`' for name in names[:3])}, {called_a_step(view, rows)}): the device is idle "
        f"for {percent(view, lost)} of the time ({a_step(view, lost)})",
        lost,
        tuple(Instant(calls.start[row], calls.thread[row]) for row in at[:200]),
    )


def _behind_waits(view: DeviceView, rows: list[int]) -> float:
    """Microseconds of such calls while the device is idle because the host has waited for it: `empty_cache` behind a read of the
    loss. Without the wait the calls themselves would wait for the device.
    """
    calls = view.recording.calls
    waiting = union((one.start, one.end) for one in view.idle if one.cause == "sync")
    return total(intersection(waiting, union((calls.start[row], calls.end[row]) for row in rows)))


def _is_usual(view: DeviceView, rows: list[int]) -> bool:
    """Whether these calls go on as the training does: in most usual steps, or very often where no steps tell."""
    if len(rows) >= MANY or len(view.steps) < 2:
        return len(rows) >= MANY
    calls = view.recording.calls
    with_calls = sum(any(step.start <= calls.start[row] < step.end for row in rows) for step in view.steps)
    return with_calls > len(view.steps) / 2


def _keeps_nothing(view: DeviceView, taking: list[int]) -> bool:
    """Whether about every tensor is made of memory that the driver gives."""
    operators, names = view.recording.operators, view.recording.names
    makes = [name in ("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::resize_") for name in names]
    made = sum(
        makes[operators.name[row]] and view.host_start <= operators.start[row] < view.end
        for row in range(len(operators))
    )
    return len(taking) >= MANY and made > 0 and len(taking) >= OF_ALL * made
