"""The window of each device of a recording.

It goes from the start of the first marked step to the end of the last one, or of the work that it launched, whichever comes
later; without marks from the first piece of work to the end of the last.
"""

from __future__ import annotations

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.intervals import clip, total
from perfaudit.trace.launches import Launches, launches_of
from perfaudit.trace.recording import Recording
from perfaudit.trace.steps import Step
from perfaudit.trace.waits import MOST_SEEN


def views_of(recording: Recording, steps: list[Step]) -> list[DeviceView]:
    """A view of each device that works at least a hundredth of what the busiest does; [] without work."""
    work = recording.work
    launches = launches_of(recording)
    by_device: dict[int, list[int]] = {}
    for row, device in enumerate(work.device):
        by_device.setdefault(device, []).append(row)
    views = []
    for device, rows in sorted(by_device.items()):
        rows.sort(key=lambda row: (work.start[row], work.end[row]))
        view = _view(recording, device, steps, launches, rows)
        if view is not None:
            views.append(view if steps else _without_beginning(view))
    busiest = max((total(view.busy) for view in views), default=0.0)
    return [view for view in views if total(view.busy) >= busiest / 100]


def _without_beginning(view: DeviceView) -> DeviceView:
    """The view of a file without steps from where its work begins: an excerpt may begin with a wait for work of before."""
    first = next(iter(view.unseen), None)
    if first is None or total(clip(view.busy, view.start, first[0])) > MOST_SEEN * total(view.busy):
        return view
    work = view.recording.work
    rows = [row for row in view.rows if work.end[row] > first[1]]
    if not rows:
        return view
    start = max(first[0], min(work.start[row] for row in rows))
    return DeviceView(
        view.recording, view.device, [], view.launches, start, view.end, start, view.host_end, rows, is_excerpt=True
    )


def _view(
    recording: Recording, device: int, steps: list[Step], launches: Launches, rows: list[int]
) -> DeviceView | None:
    work, calls = recording.work, recording.calls
    if recording.only is not None:
        first, last = recording.only
        rows = [row for row in rows if work.start[row] < last and work.end[row] > first]
    if not steps:
        if not rows:
            return None
        start, end = work.start[rows[0]], max(work.end[row] for row in rows)
        return DeviceView(recording, device, [], launches, start, end, start, end, rows) if end > start else None
    start, host_end = steps[0].start, steps[-1].end

    def launch_time(row: int) -> float:
        call = launches.of.get(row)
        return work.start[row] if call is None else calls.start[call]

    def is_unknown(row: int, end: float) -> bool:
        return row not in launches.of and work.start[row] < end

    inside = [row for row in rows if launch_time(row) <= host_end and work.end[row] > start]
    if not inside:
        return None
    end = max(host_end, max(work.end[row] for row in inside))
    # The host may have run ahead of the device: work of which the call is missing is work, though it begins behind the last step.
    inside = [row for row in rows if work.end[row] > start and (launch_time(row) <= host_end or is_unknown(row, end))]
    return DeviceView(recording, device, steps, launches, start, end, start, host_end, inside)
