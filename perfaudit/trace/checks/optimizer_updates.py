"""The optimizer updates parameters one after the other, or in several passes over them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfaudit.trace import kernel_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.intervals import intersection, total, union
from perfaudit.trace.words import a_step, percent

RULES = ("PA403", "PA402")
IS_UPDATE = re.compile(r"^Optimizer\.step#(\w+)")
_CAN_FUSE = ("Adam", "AdamW", "SGD", "Adagrad")  # with fused=True
MANY = 60  # kernels of one update; foreach Adam has about 10 to 40, whatever the model
OF_MANY_TENSORS = 0.2  # of the kernels, below which the update is a loop
PASSES = 3  # kinds of kernels over the same parameters, which fused=True makes one of


def look(view: DeviceView) -> Iterator[Seen]:
    updates = _updates(view)
    rows, lost = _launched_in(view, updates)
    if not updates or not rows:
        return
    name = IS_UPDATE.match(updates[0][2])
    optimizer = name[1] if name else "the optimizer"
    at = tuple(Instant(start, thread) for start, _, _, thread in updates)
    each = len(rows) / len(updates)
    together = sum(kernel_names.is_foreach(view.name_of(row)) for row in rows)
    # A large model takes several launches of one kernel for one pass.
    passes = len({view.name_of(row) for row in rows if kernel_names.is_foreach(view.name_of(row))})
    took = f"{percent(view, lost)} of the time ({a_step(view, lost)})"
    if each >= MANY and together < OF_MANY_TENSORS * len(rows):
        yield Seen(
            "PA403",
            f"{optimizer} updates parameters one after the other: an update has {each:,.0f} kernels, which take {took} together "
            "with the idle time between them",
            lost,
            at,
        )
    elif together and passes >= PASSES and optimizer in _CAN_FUSE and not _is_fused(view, rows):
        busy = view.busy_with([row for row in rows if kernel_names.is_foreach(view.name_of(row))])
        yield Seen(
            "PA402",
            f"{optimizer} passes over the parameters several times ({passes} kinds of kernels over many tensors), which takes "
            f"{percent(view, busy)} of the time ({a_step(view, busy)}); with fused=True it passes over them once",
            busy * (1 - 1 / passes),
            at,
        )


def _updates(view: DeviceView) -> list[tuple[float, float, str, int]]:
    """Start, end, name and thread of each update in the window, in the order of time."""
    found = []
    for spans in (view.recording.annotations, view.recording.operators):
        updates = [bool(IS_UPDATE.match(name)) for name in view.recording.names]
        found += [
            (spans.start[row], spans.end[row], view.recording.names[spans.name[row]], spans.thread[row])
            for row in range(len(spans))
            if updates[spans.name[row]] and view.host_start <= spans.start[row] < view.host_end
        ]
    return sorted(found)


def _launched_in(view: DeviceView, updates: list[tuple[float, float, str, int]]) -> tuple[list[int], float]:
    """Kernels launched in updates, and how long the device is busy with them or idle between them."""
    calls, work, of = view.recording.calls, view.recording.work, view.launches.of
    times = sorted((calls.start[of[row]], row) for row in view.rows if row in of)
    rows: list[int] = []
    stretches: list[tuple[float, float]] = []
    index = 0
    for start, end, _, _ in updates:
        mine = []
        while index < len(times) and times[index][0] < start:
            index += 1
        while index < len(times) and times[index][0] < end:
            mine.append(times[index][1])
            index += 1
        if mine:
            stretches.append((min(work.start[row] for row in mine), max(work.end[row] for row in mine)))
            rows += mine
    idle = union((one.start, one.end) for one in view.idle if one.cause == "launch")
    return rows, view.busy_with(rows) + total(intersection(idle, union(stretches)))


def _is_fused(view: DeviceView, rows: list[int]) -> bool:
    return any("Fused" in view.name_of(row) for row in rows)
