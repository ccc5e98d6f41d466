"""Copies that keep a device from computing: of memory that is not pinned, and many tiny ones."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.trace import kernel_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.intervals import intersection, total, union
from perfaudit.trace.recording import MEMORY
from perfaudit.trace.words import a_step, launched_a_step, percent, size_in_words

RULES = ("PA102", "PA907")
TINY = 4096  # bytes; a copy of less takes as long as its launch
MANY = 20  # of them in a step; a step of Adam with a schedule copies fewer


def look(view: DeviceView) -> Iterator[Seen]:
    copies = [row for row in view.rows if view.recording.work.kind[row] == MEMORY and "emset" not in view.name_of(row)]
    pageable = [
        row
        for row in copies
        if kernel_names.is_pageable_copy(view.name_of(row)) and kernel_names.direction_of(view.name_of(row)) == "HtoD"
    ]
    if pageable:
        exposed = _exposed_time(view, pageable)
        moved = sum(max(0, view.recording.work.bytes[row]) for row in pageable) / len(pageable) * _often(view, pageable)
        size = f", {size_in_words(moved)}" if moved else ""
        yield Seen(
            "PA102",
            f"copies to the device come from memory that is not pinned ({launched_a_step(view, pageable)}{size}). The device "
            f"does nothing else than these for {percent(view, exposed)} of the time ({a_step(view, exposed)})",
            exposed,
            _launched_at(view, pageable),
        )
    yield from _tiny(view, [row for row in copies if 0 <= view.recording.work.bytes[row] <= TINY])


def _tiny(view: DeviceView, tiny: list[int]) -> Iterator[Seen]:
    if _often(view, tiny) < MANY:
        return
    lost = _exposed_time(view, tiny) + _idle_before(view, tiny)
    yield Seen(
        "PA907",
        f"copies of at most {TINY >> 10} KiB ({launched_a_step(view, tiny)}): with the idle time before each they take "
        f"{percent(view, lost)} of the time ({a_step(view, lost)})",
        lost,
        _launched_at(view, tiny),
    )


def _often(view: DeviceView, rows: list[int]) -> float:
    """How many of these a step launches; of a trace without steps how many there are."""
    return view.step_times.launched_in_one(rows) if view.steps else len(rows)


def _exposed_time(view: DeviceView, rows: list[int]) -> float:
    work = view.recording.work
    return total(intersection(view.exposed_memory, union((work.start[row], work.end[row]) for row in rows)))


def _idle_before(view: DeviceView, rows: list[int]) -> float:
    """Idle time by launching that ends with one of these."""
    starts = {view.recording.work.start[row] for row in rows}
    return sum(one.end - one.start for one in view.idle if one.cause == "launch" and view.gaps[one.gap].end in starts)


def _launched_at(view: DeviceView, rows: list[int]) -> tuple[Instant, ...]:
    calls = view.recording.calls
    longest = sorted(rows, key=view.microseconds, reverse=True)[:200]
    of = view.launches.of
    return tuple(Instant(calls.start[of[row]], calls.thread[of[row]]) for row in longest if row in of)
