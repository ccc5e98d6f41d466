"""A trace without work of a device: what the host alone tells."""

from __future__ import annotations

from perfaudit.trace.checks import LEAST
from perfaudit.trace.file_result import FileResult, TraceFinding
from perfaudit.trace.host_threads import SINGLE_PROCESS, Instant, data_wait_spans, data_waits, launch_times, main_thread
from perfaudit.trace.idle import CAUSES
from perfaudit.trace.intervals import Intervals, clip, total
from perfaudit.trace.recording import MICROSECOND, Recording
from perfaudit.trace.recurrence import are_few, steps_with
from perfaudit.trace.steps import Step
from perfaudit.trace.warm_up import warm_up_steps
from perfaudit.trace.whereabouts import whereabouts
from perfaudit.trace.words import milliseconds
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
    usual = steps[warm_up_steps(recording, steps) :]
    usual_start = usual[0].start if usual else start
    waits = data_waits(recording, frozenset({main}))
    each = (end - usual_start) * MICROSECOND / len(usual) if usual else None
    notes = set(recording.notes)
    notes |= {"warm-up"} if len(usual) < len(steps) else set()
    notes |= {"device-not-recorded"} if launch_times(recording) else set()
    device = RankTrace(
        recording.file,
        recording.rank,
        "cpu",
        (end - start) * MICROSECOND,
        len(steps),
        _shares(waits, start, end),
        notes=tuple(sorted(notes)),
        seconds_per_step=each,
        step_seconds=tuple((step.end - step.start) * MICROSECOND for step in steps),
        events=recording.events,
        usual_shares=_shares(waits, usual_start, end),
    )
    data = clip(waits, usual_start, end)
    # Without its device a job that runs ahead of it seems to wait for data, which the device does not.
    is_cut = "cut-work" in recording.notes
    findings = [] if is_cut else _waits_of_host(recording, device, data, main, [step.start for step in usual])
    return FileResult(recording.file, (device,), tuple(findings), rank=recording.rank)


def _shares(waits: Intervals, start: float, end: float) -> dict[str, float]:
    """Waiting for data is known. Python between operators is work too, so that `compute` is all other time of the host."""
    shares = dict.fromkeys(("compute", "communication_exposed", "memory_exposed"), 0.0)
    shares |= {f"idle_{cause}": 0.0 for cause in CAUSES}
    shares["idle_data"] = total(clip(waits, start, end)) / (end - start)
    shares["compute"] = 1.0 - shares["idle_data"]
    return shares


def _waits_of_host(
    recording: Recording, device: RankTrace, data: Intervals, main: int, starts: list[float]
) -> list[TraceFinding]:
    """The one finding that a trace without a device allows: the training waits for its data. starts: of usual steps."""
    share = device.usual_shares["idle_data"]
    if share < LEAST:
        return []
    spans = data_wait_spans(recording, frozenset({main}))
    is_alone = sum(SINGLE_PROCESS in name for _, _, name in spans) > len(spans) / 2
    how = "loads it in the training process" if is_alone else "does not have it ready"
    having = len(steps_with(starts, data))
    rare = are_few(having, len(starts))
    each = None if device.seconds_per_step is None or rare else share * device.seconds_per_step
    often = f"{milliseconds(total(data))} {f'on {having} of {len(starts)} steps' if rare else 'in all'}"
    return [
        TraceFinding(
            "PA101" if is_alone else "PA901",
            f"the training waits for its next batch for {100 * share:.0f} % of the time "
            f"({often if each is None else f'{1000 * each:.3g} ms a step'}): the loader {how}",
            total(data) * MICROSECOND,
            share,
            each,
            recording.rank,
            "cpu",
            whereabouts(recording, [Instant(start, main) for start, _ in data]),
        )
    ]
