"""A trace without work of a device: what the host alone tells."""

from __future__ import annotations

from perfaudit.trace.checks import LEAST
from perfaudit.trace.file_result import FileResult, TraceFinding
from perfaudit.trace.host_threads import SINGLE_PROCESS, Instant, data_wait_spans, data_waits, main_thread
from perfaudit.trace.idle import CAUSES
from perfaudit.trace.intervals import clip, total
from perfaudit.trace.recording import MICROSECOND, Recording
from perfaudit.trace.steps import Step
from perfaudit.trace.whereabouts import whereabouts
from perfaudit.traces import RankTrace


def result_of_host(recording: Recording, steps: list[Step]) -> FileResult:
    """A trace without work of a device: the thread that trains is looked at instead."""
    main = main_thread(recording)
    operators = recording.operators
    if main is None or not len(operators):
        return FileResult(recording.file, problem="no operators and no work of a device in it", rank=recording.rank)
    mine = [
        (operators.start[row], operators.end[row]) for row in range(len(operators)) if operators.thread[row] == main
    ]
    start, end = (steps[0].start, steps[-1].end) if steps else (min(mine)[0], max(pair[1] for pair in mine))
    if end <= start:
        return FileResult(recording.file, problem="its operators take no time", rank=recording.rank)
    data = clip(data_waits(recording, frozenset({main})), start, end)
    length = end - start
    shares = dict.fromkeys(("compute", "communication_exposed", "memory_exposed"), 0.0)
    shares |= {f"idle_{cause}": 0.0 for cause in CAUSES}
    shares["idle_data"] = total(data) / length
    shares["compute"] = (
        1.0 - shares["idle_data"]
    )  # Python between operators is work too: nothing else is known to be idle
    device = RankTrace(
        recording.file,
        recording.rank,
        "cpu",
        length * MICROSECOND,
        len(steps),
        shares,
        notes=tuple(sorted(recording.notes)),
        seconds_per_step=length * MICROSECOND / len(steps) if steps else None,
        step_seconds=tuple((step.end - step.start) * MICROSECOND for step in steps),
        events=recording.events,
    )
    return FileResult(recording.file, (device,), tuple(_waits_of_host(recording, device, data)), rank=recording.rank)


def _waits_of_host(recording: Recording, device: RankTrace, data: list[tuple[float, float]]) -> list[TraceFinding]:
    """The one finding that a trace without a device allows: the training waits for its data."""
    share = device.shares["idle_data"]
    main = main_thread(recording)
    if share < LEAST or main is None:
        return []
    spans = data_wait_spans(recording, frozenset({main}))
    is_alone = sum(SINGLE_PROCESS in name for _, _, name in spans) > len(spans) / 2
    how = "loads it in the training process" if is_alone else "does not have it ready"
    seconds = share * device.window_seconds
    each = None if device.seconds_per_step is None else share * device.seconds_per_step
    often = f"{seconds:.3g} s in all" if each is None else f"{1000 * each:.3g} ms a step"
    return [
        TraceFinding(
            "PA101" if is_alone else "PA901",
            f"the training waits for its next batch for {100 * share:.0f} % of the time ({often}): the loader {how}",
            seconds,
            share,
            each,
            recording.rank,
            "cpu",
            whereabouts(recording, [Instant(start, main) for start, _ in data]),
        )
    ]
