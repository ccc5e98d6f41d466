"""The host hands out kernels more slowly than the device runs them."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.host_work import host_work
from perfaudit.trace.idle import Idle, longest_first
from perfaudit.trace.intervals import Total, clip, total, union
from perfaudit.trace.launch_order import arrivals, longest_graphable
from perfaudit.trace.launch_path import LaunchPath
from perfaudit.trace.set_up import loading_calls
from perfaudit.trace.whereabouts import MOST
from perfaudit.trace.words import a_step, milliseconds, percent, times_a_step

RULES = ("PA902",)
FEW = 20  # kernels, of which nothing can be said
SHARE = 0.1  # of them that arrive when the device has nothing to do; fewer are the start of a step
LONGEST = 10_000.0  # microseconds of one gap; a launch that takes longer loads code, or the host does something else
LEAST = 5  # of them that arrive late, or one long pause would make a program launch-bound
OF_GAP = 0.5  # that a launch takes that loads code, which happens once
OF_GRAPH = 0.1  # of the idle time, or a graph would not help
KNOWN = 0.5  # of the kernels of which the launch must be known


def look(view: DeviceView) -> Iterator[Seen]:
    elsewhere = {one.stretch for one in host_work(view)}
    path = LaunchPath(view)
    calls = view.recording.calls
    loading = Total(union((calls.start[row], calls.end[row]) for row in loading_calls(view)))
    stretches = [
        one
        for one in longest_first(view.idle, "launch")
        if one.end - one.start <= LONGEST
        and one not in elsewhere
        and loading.between(one.start, one.end) < OF_GAP * (one.end - one.start)
        and _is_bound(view, path, one)
    ]
    lost = sum(one.end - one.start for one in stretches)
    seen = arrivals(view, path)
    if seen.launches < FEW or seen.at_empty_queue < LEAST or seen.known < KNOWN * seen.kernels or seen.share < SHARE:
        return
    if not lost or view.is_sample:
        return  # events are missing: what the host did in between is not known
    often = times_a_step(view, seen.launches, seen.in_a_step)
    kernels = f"kernels{' and graphs' * (seen.launches < seen.known)} are launched {often}"
    said = (
        f"the device waits for launches for {percent(view, lost)} of the time ({a_step(view, lost)}): the host takes "
        f"{_host_and_work(view, path)}. {kernels.capitalize()}, and {100 * seen.share:.0f} % of these launches reach a device "
        "that has nothing to do"
    )
    graph = longest_graphable(view)
    if graph is not None and graph.kernels >= 10:
        idle = union((one.start, one.end) for one in stretches)
        inside = sum(total(clip(idle, start, end)) for start, end in graph.places) / len(graph.places)
        lost_in_one = view.step_times.in_one(lost) or 0.0
        if inside >= OF_GRAPH * lost_in_one:
            said += (
                f". A CUDA graph could hold a row of {graph.kernels:,} kernels and copies that is the same in every step, "
                f"without a wait or an allocation in it ({milliseconds(min(inside, lost_in_one))} a step of the idle time)"
            )
    at = []
    for one in stretches[:MOST]:
        gap = view.gaps[one.gap]
        if gap.launch is not None and gap.thread is not None:
            at.append(Instant(gap.launch[0], gap.thread, one.end - one.start))
    yield Seen("PA902", said, lost, tuple(at))


def _is_bound(view: DeviceView, path: LaunchPath, idle: Idle) -> bool:
    """Whether this lies where launching takes longer than the work, and not behind a wait with which the host soon catches up."""
    launch = view.gaps[idle.gap].launch
    stretch = path.at(idle.start if launch is None else launch[0])
    return stretch is not None and stretch.is_bound


def _host_and_work(view: DeviceView, path: LaunchPath) -> str:
    """How long the host takes where it is slower, and the device for the same: "9.1 ms a step to launch work of 4.2 ms"."""
    own, work = sum(one.own for one in path.bound_stretches), sum(one.work for one in path.bound_stretches)
    each = view.step_times.in_one(work)
    return f"{a_step(view, own)} to launch work of {milliseconds(work if each is None else each)}"
