"""Kernels in the order in which the host launched them, step by step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.idle import LATENCY
from perfaudit.trace.launch_path import LaunchPath
from perfaudit.trace.recording import MEMORY


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Kernels, those whose launch is known, the launches of these, and launches that came when the device had nothing left to do.

    at_empty_queue: of these those in stretches in which launching takes longer than the work. A CUDA graph launches many kernels
    at once.
    """

    kernels: int
    known: int
    launches: int
    in_a_step: float  # launches
    at_empty_queue: int

    @property
    def share(self) -> float:
        """Of the launches, those that came late."""
        return self.at_empty_queue / self.launches if self.launches else 0.0


def arrivals(view: DeviceView, path: LaunchPath) -> Arrivals:
    """A launch comes to an empty queue where all work before its first kernel had ended when it returned."""
    work, calls = view.recording.work, view.recording.calls
    kernels = known = empty = 0
    launched: set[int] = set()
    reached = view.start
    for row in view.rows:
        call = view.launches.of.get(row)
        kernels += work.kind[row] != MEMORY
        if call is not None and work.kind[row] != MEMORY:
            known += 1
            if call not in launched:
                launched.add(call)
                is_late = reached <= calls.end[call] and work.start[row] - calls.end[call] <= 4 * LATENCY
                empty += is_late and (stretch := path.at(calls.start[call])) is not None and stretch.is_bound
        reached = max(reached, work.end[row])
    return Arrivals(kernels, known, len(launched), view.step_times.called_in_one(launched), empty)


@dataclass(frozen=True, slots=True)
class Graphable:
    """A stretch of a step that a CUDA graph could hold: the same kernels in every step, without a wait or an allocation.

    kernels: in one step. start, end: of it in each step, microseconds of the device.
    """

    kernels: int
    places: tuple[tuple[float, float], ...]


def longest_graphable(view: DeviceView) -> Graphable | None:
    """The longest such stretch; None with fewer than two steps, or where no stretch is the same in all of them.

    Criteria of the Mask R-CNN work of NVIDIA and AWS: no synchronisation, no allocation, the same shapes in each step.
    Here: no call that waits, the same kernels with the same grids; the first step of several does not count, as it may set
    things up.
    """
    steps = view.steps[1:] if len(view.steps) > 2 else view.steps
    if len(steps) < 2:
        return None
    calls, of = view.recording.calls, view.launches.of
    blockers = sorted(calls.start[row] for row in {*view.waits, *view.calls("sync"), *view.calls("allocation")})
    launched = sorted((calls.start[of[row]], row) for row in view.rows if row in of)
    segments = []
    for step in steps:
        inside = launched[bisect_left(launched, (step.start, -1)) : bisect_left(launched, (step.end, -1))]
        segments.append(list(_segments(view, inside, blockers)))
    common = set.intersection(*({kernels for kernels, _ in one} for one in segments))
    if not common:
        return None
    longest = max(common, key=lambda kernels: (len(kernels), kernels))
    work = view.recording.work
    places = []
    for one in segments:
        rows = next(rows for kernels, rows in one if kernels == longest)
        places.append((min(work.start[row] for row in rows), max(work.end[row] for row in rows)))
    return Graphable(len(longest), tuple(places))


def _segments(
    view: DeviceView, launched: list[tuple[float, int]], blockers: list[float]
) -> Iterator[tuple[tuple[tuple[int, int], ...], list[int]]]:
    """Kernels launched between two blockers of a step: name and grid of each, and their rows. launched: times and rows of the
    step.
    """
    work = view.recording.work
    kernels: list[tuple[int, int]] = []
    rows: list[int] = []
    segment = -1
    for time, row in launched:
        here = bisect_right(blockers, time)
        if here != segment and rows:
            yield tuple(kernels), rows
            kernels, rows = [], []
        segment = here
        kernels.append((work.name[row], work.grid[row]))
        rows.append(row)
    if rows:
        yield tuple(kernels), rows
