"""Pointwise kernels that follow each other, each reading and writing what one kernel could."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.trace import kernel_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.words import a_step, percent, times_a_step

RULES = ("PA306",)
LEAST = 3  # in a row; two are an activation and its bias, which other kernels take in often
SHARE = 0.05  # of the window that they take


def look(view: DeviceView) -> Iterator[Seen]:
    runs = [run for run in _runs(view) if len(run) >= LEAST]
    taken = sum(view.microseconds(row) for run in runs for row in run)
    if taken < SHARE * view.length:
        return
    lost = sum(sum(times) - max(times) for times in ([view.microseconds(row) for row in run] for run in runs))
    calls, of = view.recording.calls, view.launches.of
    longest = sorted(runs, key=lambda run: sum(view.microseconds(row) for row in run), reverse=True)[:200]
    yield Seen(
        "PA306",
        f"pointwise kernels in rows of {LEAST} and more ({times_a_step(view, len(runs))} such a row) take "
        f"{percent(view, taken)} of "
        f"the time ({a_step(view, taken)}); fused, each row is one kernel that reads and writes once",
        lost,
        tuple(Instant(calls.start[of[run[0]]], calls.thread[of[run[0]]]) for run in longest if run[0] in of),
    )


def _runs(view: DeviceView) -> Iterator[list[int]]:
    """Rows of pointwise kernels of one stream without another kernel between them."""
    work = view.recording.work
    open_runs: dict[int, list[int]] = {}
    for row in view.rows:
        stream = work.stream[row]
        if kernel_names.is_pointwise(view.name_of(row)):
            open_runs.setdefault(stream, []).append(row)
        elif run := open_runs.pop(stream, None):
            yield run
    yield from open_runs.values()
