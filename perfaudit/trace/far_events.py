"""Events whose times cannot be right beside those of all others: a kernel of eleven days would be the whole of any window."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from perfaudit.trace.recording import Recording, Spans, Work

HOUR = 3.6e9  # microseconds; a collective that hangs is given up after half of it
FAR = 100.0  # times the stretch in which half of the events begin
FEW = 0.01  # of the events, up to which they are the odd ones


def leave_out_far_events(recording: Recording) -> None:
    """Drops the few events that last for hours, or begin hours before or after all others, and notes "odd-events".

    Many such events are a long recording, and stay.
    """
    several: list[Work | Spans] = [
        recording.work,
        recording.calls,
        recording.operators,
        recording.annotations,
        recording.frames,
    ]
    several = [rows for rows in several if len(rows)]
    if not several or max(max(rows.end) for rows in several) - min(min(rows.start) for rows in several) <= HOUR:
        return
    starts = sorted(start for rows in several for start in rows.start)
    first, last = starts[len(starts) // 4], starts[3 * len(starts) // 4]
    most = max(HOUR, FAR * (last - first))

    def rows_to_keep(rows: Work | Spans) -> list[int]:
        return [
            row
            for row, (start, end) in enumerate(zip(rows.start, rows.end, strict=True))
            if end - start <= most and first - most <= start <= last + most
        ]

    usual = [rows_to_keep(rows) for rows in several]
    left_out = len(starts) - sum(map(len, usual))
    if not 0 < left_out <= max(1, FEW * len(starts)):
        return
    for rows, numbers in zip(several, usual, strict=True):
        _keep(rows, numbers)
    recording.notes.add("odd-events")


def _keep(rows: Work | Spans, numbers: Sequence[int]) -> None:
    """Only these rows, in their order."""
    if len(numbers) == len(rows):
        return
    if isinstance(rows, Work):
        places = {row: place for place, row in enumerate(numbers)}
        rows.collectives = {places[row]: one for row, one in rows.collectives.items() if row in places}
        rows.kind = bytearray(rows.kind[row] for row in numbers)
    for name in ("start", "end", "name", "thread", "device", "stream", "correlation", "bytes", "grid"):
        column = getattr(rows, name, None)
        if isinstance(column, array) and len(column):
            setattr(rows, name, array(column.typecode, (column[row] for row in numbers)))
