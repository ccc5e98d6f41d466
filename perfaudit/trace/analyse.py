"""One trace file from its bytes to what a report says of it: shares, findings, and the collectives that ranks are compared by."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter
from itertools import pairwise

from perfaudit.trace.buffer_broadcasts import buffer_broadcasts
from perfaudit.trace.checks import WARM_UP, Seen, look_at
from perfaudit.trace.collectives import collectives_of
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.file_result import FileResult, TraceFinding
from perfaudit.trace.host_only import result_of_host
from perfaudit.trace.host_threads import Instant, main_thread
from perfaudit.trace.idle import CAUSES, longest_first, microseconds_by_cause
from perfaudit.trace.intervals import intersection, total
from perfaudit.trace.matrix_products import products_of
from perfaudit.trace.missing_events import LOST, SAMPLED, lacks_launches, lost_launches
from perfaudit.trace.read import LARGEST, read_trace
from perfaudit.trace.recording import MICROSECOND, Recording
from perfaudit.trace.steps import Step, are_consecutive, are_repeated, marked_steps, steps_of
from perfaudit.trace.timeline import timeline_of
from perfaudit.trace.trace_files import NotReadable, TraceFile
from perfaudit.trace.views import views_of
from perfaudit.trace.whereabouts import MOST as MOST_INSTANTS
from perfaudit.trace.whereabouts import whereabouts
from perfaudit.traces import IdleWhere, KernelRow, RankTrace

MOST_KERNELS = 20
LEAST_WHERE = 0.005  # of the window; where less is lost, nobody asks where
OTHER_DEVICES = ("mtia", "npu")  # whose events overlap or have no category, so that shares of them mean nothing
YEAR_2001, YEAR_2100 = 1e9, 4.1e9  # in seconds since 1970
UNSEEN_SHARE = (
    0.02  # of the window in which the host waits for work that is not in the file, from which on that is said
)
LATE_SHARE = 0.05  # of the window that queued work may come late, as one stream waits for another
UNEVEN = 1.3  # times the median, from which on the slowest step is said to be slow
SEVERAL = 0.1  # of the calls of the busiest process, from which on another one counts
LEAST_STEPS = 5  # fewer tell no median


def analyse(file: TraceFile, window: tuple[int, int] | None = None) -> FileResult:
    """What is in a file; `problem` says why nothing is. window: numbers of the first and the last step to look at."""
    try:
        recording = read_trace(file, window)
    except NotReadable as error:
        return FileResult(file.name, problem=str(error))
    marked = marked_steps(recording)
    numbers = (marked[0].number, marked[-1].number) if marked else None
    steps = steps_of(recording, window)
    if window is not None and not steps:
        has = f"it has {numbers[0]} to {numbers[1]}" if numbers else "none is marked in it"
        return FileResult(
            file.name, problem=f"no step of {window[0]} to {window[1]}: {has}", steps=numbers, is_outside=True
        )
    if recording.device_kind in OTHER_DEVICES and not recording.has_known_devices:
        kind = recording.device_kind.upper()
        return FileResult(
            file.name,
            problem=f"a trace of {kind} devices: only work of CUDA, ROCm and XPU devices is read",
            rank=recording.rank,
        )
    if recording.notes & {"truncated", "part"}:
        steps = _with_work(recording, steps)
    recording.notes |= _notes(recording, steps)
    views = views_of(recording, steps)
    if "truncated" in recording.notes and _is_cut(recording, steps, views):
        recording.notes.add("cut-work")
    if not views:
        return result_of_host(recording, steps)
    is_cut = "cut-work" in recording.notes
    seen = [(view, [] if is_cut else list(look_at(view))) for view in views]
    return FileResult(
        file.name,
        tuple(_device(view, any(one.rule == WARM_UP for one in several)) for view, several in seen),
        tuple(_findings(seen)),
        tuple(collectives_of(max(views, key=lambda view: total(view.communication)).usual)),
        recording.rank,
        recording.world_size,
        recording.job,
        began=began_at(recording, min(view.start for view in views)),
        steps=numbers,
        export_of=recording.export_of,
    )


def _with_work(recording: Recording, steps: list[Step]) -> list[Step]:
    """The steps of which all work is there, of a file that ends in the middle or of which a part was kept: a device runs behind
    its host.
    """
    last = _last_work(recording)
    return [step for step in steps if step.end <= last] or steps[:1]


def _last_work(recording: Recording) -> float:
    return max(recording.work.end, default=float("inf"))


def _is_cut(recording: Recording, steps: list[Step], views: list[DeviceView]) -> bool:
    """Whether a file that ends in the middle lacks work of the steps that are looked at, or the calls that launched it.

    Profilers write the operators of all steps first and their work behind them, kind by kind or buffer by buffer. What is cut
    off is then some work of all steps, and not the last step alone. Calls and their work are cut off together, so nothing that is
    there tells how much is missing.
    """
    if not views or recording.is_work_apart:
        return True
    if steps and steps[0].end > _last_work(recording):
        return True
    return "no-host" in recording.notes or any(max(lost_launches(view), view.lost_work) > LOST for view in views)


def began_at(recording: Recording, start: float) -> float | None:
    """Seconds since 1970 of an instant of the recording; None where the file has relative times. Since Kineto writes times from
    a base of its own, that base stands in the head.
    """
    base = recording.head.get("baseTimeNanoseconds")
    if not isinstance(base, int | float) or isinstance(base, bool) or not abs(base) < LARGEST:
        base = 0
    since = base / 1e9
    seconds = since + (recording.base + start) * MICROSECOND
    return seconds if YEAR_2001 < seconds < YEAR_2100 else None


def _notes(recording: Recording, steps: list[Step]) -> set[str]:
    notes = set()
    if not steps:
        notes.add("no-steps")
    elif are_repeated(steps):
        notes.add("repeated-steps")
    elif not are_consecutive(steps):
        notes.add("missing-steps")
    if not len(recording.work):
        notes.add("no-device")
    if len(recording.work) and not len(recording.calls) and not len(recording.operators):
        notes.add("no-host")
    if _are_several_processes(recording):
        notes.add("several-processes")
    if recording.rank is not None and "distributedInfo" not in recording.head:
        notes.add("rank-from-name")
    return notes


def _are_several_processes(recording: Recording) -> bool:
    """Whether calls of the runtime are of several processes: a profiler records one, and tools put several into one file."""
    calls = Counter(recording.threads[thread][0] for thread in recording.calls.thread)
    return sum(number >= SEVERAL * max(calls.values()) for number in calls.values()) > 1


def _device(view: DeviceView, has_warm_up: bool) -> RankTrace:
    recording = view.recording
    notes = set(recording.notes)
    if view.launches.ambiguous:
        notes.add("overlapping-ids")
    if recording.spread_of_ids > SAMPLED:
        notes.add("sampled")
    if "no-host" not in notes and (lacks_launches(view) or view.lost_work > LOST):
        notes.add("filtered")
    lacks = max(total(view.unseen), view.late_by_itself - LATE_SHARE * view.length)
    if view.is_excerpt or lacks > UNSEEN_SHARE * view.length:
        notes.add("unseen-work")
    if view.usual is not view or has_warm_up:
        notes.add("warm-up")
    if buffer_broadcasts(view.usual):
        notes.add("buffer-broadcasts")
    if view.captures:
        notes.add("graph-capture")
    if _is_uneven(view):
        notes.add("uneven-steps")
    communication = total(view.communication)
    timeline, timeline_seconds = timeline_of(view)
    lengths = [(step.end - step.start) * MICROSECOND for step in view.steps]
    each = view.usual.step_times.microseconds
    return RankTrace(
        file=recording.file,
        rank=recording.rank,
        device=f"{recording.device_kind}:{view.device}",
        window_seconds=view.length * MICROSECOND,
        steps=len(view.steps),
        shares=_shares(view),
        usual_shares=_shares(view.usual) if view.usual.rows else {},
        communication_overlap=(
            total(intersection(view.communication, view.compute)) / communication if communication else None
        ),
        tensor_core_share=products_of(view).tensor_core_share,
        notes=tuple(sorted(notes)),
        device_name=recording.device_names.get(view.device, ""),
        seconds_per_step=None if each is None else each * MICROSECOND,
        step_seconds=tuple(lengths),
        events=recording.events,
        where=tuple(_where(view)),
        kernels=tuple(_kernels(view)),
        timeline=tuple(timeline),
        timeline_seconds=timeline_seconds,
    )


def _is_uneven(view: DeviceView) -> bool:
    """Whether a usual step takes the device much longer than most, from the end of the step before's work to that of its own.

    The host's steps tell less: it runs ahead of the device until the queue is full.
    """
    # When the step before the first one ended is not known.
    times = view.usual.step_times
    lengths = [later - earlier for earlier, later in pairwise(times.ends)]
    is_told = len(times.with_work) == len(times.ends) and len(lengths) >= LEAST_STEPS - 1
    return is_told and max(lengths) > UNEVEN * statistics.median(lengths)


def _shares(view: DeviceView) -> dict[str, float]:
    """Shares of the window, divided by their sum, so that they add up to 1."""
    idle = microseconds_by_cause(view.idle)
    parts = {
        "compute": total(view.compute),
        "communication_exposed": total(view.exposed_communication),
        "memory_exposed": total(view.exposed_memory),
        **{f"idle_{cause}": idle[cause] for cause in CAUSES},
    }
    whole = sum(parts.values())
    return {name: value / whole for name, value in parts.items()}


def _where(view: DeviceView) -> list[IdleWhere]:
    """Of each cause, where in the program most of it lies."""
    lost = microseconds_by_cause(view.idle)
    main = main_thread(view.recording)
    found: list[IdleWhere] = []
    if view.is_sample:
        return found
    for cause in CAUSES:
        if lost[cause] < LEAST_WHERE * view.length:
            continue
        instants = []
        for one in longest_first(view.idle, cause)[:MOST_INSTANTS]:
            gap = view.gaps[one.gap]
            thread = gap.thread if cause == "launch" and gap.thread is not None else main
            if thread is not None:
                instants.append(Instant((one.start + one.end) / 2, thread, one.end - one.start))
        place = whereabouts(view.recording, instants)
        found.append(IdleWhere(cause, lost[cause] / view.length, place.annotation, place.operator, place.source_line))
    return found


def _kernels(view: DeviceView) -> list[KernelRow]:
    by_name = view.rows_by_name
    spent = {name: view.busy_with(rows) for name, rows in by_name.items()}
    longest = sorted(spent, key=lambda name: -spent[name])[:MOST_KERNELS]
    return [KernelRow(view.recording.names[name], spent[name] / view.length, len(by_name[name])) for name in longest]


def _findings(views: list[tuple[DeviceView, list[Seen]]]) -> list[TraceFinding]:
    """Of all devices of a file; of one rule the one that could save most."""
    found: dict[str, TraceFinding] = {}
    for view, several in views:
        for seen in several:
            share = seen.share(view)
            recurring = seen.microseconds if seen.recurring is None else min(seen.microseconds, seen.recurring)
            each = view.usual.step_times.in_one(recurring) if recurring else None
            if seen.rule in found and found[seen.rule].share >= share:
                continue
            found[seen.rule] = TraceFinding(
                seen.rule,
                seen.message,
                seen.microseconds * MICROSECOND,
                share,
                None if each is None else each * MICROSECOND,
                view.recording.rank,
                f"{view.recording.device_kind}:{view.device}",
                whereabouts(view.recording, seen.at),
                view.recording.file,
                _step_of(view, seen.at),
            )
    return sorted(found.values(), key=lambda one: -one.share)


def _step_of(view: DeviceView, instants: tuple[Instant, ...]) -> int | None:
    """The number of the step that holds the costliest of some instants."""
    at = bisect_right([step.start for step in view.steps], instants[0].time) - 1 if instants else -1
    return view.steps[at].number if at >= 0 else None
