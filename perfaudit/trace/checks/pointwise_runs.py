"""Pointwise kernels that follow each other, each reading and writing what one kernel could."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.trace import kernel_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.intervals import Intervals, Total, union
from perfaudit.trace.words import a_step, launched_a_step, percent

RULES = ("PA306",)
LEAST = 3  # in a row; two are an activation and its bias, which other kernels take in often
SHARE = 0.05  # of the window that they take


def look(view: DeviceView) -> Iterator[Seen]:
    runs = [run for run in _runs(view, _of_optimizer(view)) if len(run) >= LEAST and _differ(view, run)]
    taken = view.busy_with(row for run in runs for row in run)
    if taken < SHARE * view.length:
        return
    longest_of_each = [max(run, key=view.microseconds) for run in runs]
    lost = max(0.0, taken - view.busy_with(longest_of_each))
    calls, of = view.recording.calls, view.launches.of
    longest = sorted(runs, key=lambda run: sum(view.microseconds(row) for row in run), reverse=True)[:200]
    yield Seen(
        "PA306",
        f"pointwise kernels follow each other in rows of {LEAST} or more ({launched_a_step(view, [run[0] for run in runs])}) "
        f"and take {percent(view, taken)} of the time ({a_step(view, taken)}); fused, each row would be one kernel that reads "
        "and writes once",
        lost,
        tuple(Instant(calls.start[of[run[0]]], calls.thread[of[run[0]]]) for run in longest if run[0] in of),
    )


def _differ(view: DeviceView, run: list[int]) -> bool:
    """Whether a row has several kernels; the same one again and again most often works on tensors that have nothing in common."""
    return len({view.recording.work.name[row] for row in run}) > 1


def _of_optimizer(view: DeviceView) -> Intervals:
    """When updates and `zero_grad` run on the host: they do the same to each parameter, and have rules of their own."""
    found = []
    for spans in (view.recording.annotations, view.recording.operators):
        marked = [name.startswith("Optimizer.") for name in view.recording.names]
        found += [(spans.start[row], spans.end[row]) for row in range(len(spans)) if marked[spans.name[row]]]
    return union(found)


def _runs(view: DeviceView, left_out: Intervals) -> Iterator[list[int]]:
    """Rows of pointwise kernels of one stream without another kernel between them."""
    calls, of = view.recording.calls, view.launches.of
    inside = Total(left_out)
    work = view.recording.work
    open_runs: dict[int, list[int]] = {}
    pointwise = {name for name in view.rows_by_name if kernel_names.is_pointwise(view.recording.names[name])}
    for row in view.rows:
        stream = work.stream[row]
        is_one = work.name[row] in pointwise
        if is_one and left_out and (launch := of.get(row)) is not None:
            is_one = inside.between(calls.start[launch], calls.end[launch]) <= 0
        if is_one:
            open_runs.setdefault(stream, []).append(row)
        elif run := open_runs.pop(stream, None):
            yield run
    yield from open_runs.values()
