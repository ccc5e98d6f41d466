"""Which call of the runtime handed each piece of work over."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from perfaudit.trace import runtime_names
from perfaudit.trace.recording import Recording


@dataclass(slots=True)
class Launches:
    """Which call handed each piece of work over: the row of `Recording.calls` by the row of `Recording.work`."""

    of: dict[int, int] = field(default_factory=dict)
    ambiguous: bool = False  # several calls have one correlation


def launches_of(recording: Recording) -> Launches:
    """By correlation; of several calls with the same one, the latest that began before the work."""
    calls, work = recording.calls, recording.work
    first: dict[int, int] = {}
    more: dict[int, list[int]] = {}
    handing_over = [
        runtime_names.call_of(name) in ("launch", "copy", "sync") for name in recording.names
    ]  # a synchronous cudaMemcpy waits, and hands over too
    for row, correlation in enumerate(calls.correlation):
        if correlation > 0 and handing_over[calls.name[row]]:
            if correlation in first:
                more.setdefault(correlation, [first[correlation]]).append(row)
            else:
                first[correlation] = row
    for rows in more.values():
        rows.sort(key=calls.start.__getitem__)
    found = Launches(ambiguous=bool(more))
    for row, correlation in enumerate(work.correlation):
        if correlation <= 0:
            continue
        call = first.get(correlation)
        if call is None:
            continue
        if correlation in more:
            several = more[correlation]
            call = several[max(0, bisect_right(several, work.start[row], key=calls.start.__getitem__) - 1)]
        found.of[row] = call
    return found
