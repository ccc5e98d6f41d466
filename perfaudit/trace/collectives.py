"""The collectives of one rank, with names that are the same on all ranks for the same one."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.file_result import CollectiveRow
from perfaudit.trace.intervals import Total
from perfaudit.trace.recording import COMMUNICATION, MICROSECOND


def collectives_of(view: DeviceView) -> list[CollectiveRow]:
    """The collectives that the steps launched, in the order of their start, numbered by kind and group.

    A trace that does not name groups has its streams instead, by the order in which they are used: each group has its own,
    and all ranks run the same program.
    """
    work = view.recording.work
    rows = [row for row in view.rows if work.kind[row] == COMMUNICATION and _is_of_steps(view, row)]
    streams: dict[int, int] = {}
    numbers: Counter[tuple[str, str, int]] = Counter()
    starts = [step.start for step in view.steps]
    compute = Total(view.compute)
    found = []
    before = view.start
    for row in rows:
        said = work.collectives.get(row)
        stream = streams.setdefault(work.stream[row], len(streams))
        group = said.group if said is not None and said.group else f"stream {stream}"
        call = view.launches.of.get(row)
        step = bisect_right(starts, view.recording.calls.start[call]) - 1 if call is not None else -1
        kind = (view.operations[row], group, view.steps[step].number if step >= 0 else -1)
        computing = compute.between(before, max(before, work.start[row]))
        found.append(
            CollectiveRow(
                (*kind, numbers[kind]),
                (work.start[row] - view.start) * MICROSECOND,
                (work.end[row] - view.start) * MICROSECOND,
                computing * MICROSECOND,
                (work.end[row] - work.start[row] - compute.between(work.start[row], work.end[row])) * MICROSECOND,
                said.elements if said is not None else None,
            )
        )
        numbers[kind] += 1
        before = max(before, work.end[row])
    return found


def _is_of_steps(view: DeviceView, row: int) -> bool:
    """Whether a marked step launched it, so that every rank has it; what an earlier step left in the queue runs in the
    window too.
    """
    start, call = view.recording.work.start[row], view.launches.of.get(row)
    if not view.steps or not view.launches.of:
        return start >= view.start
    return call is not None and view.host_start <= view.recording.calls.start[call] <= view.host_end
