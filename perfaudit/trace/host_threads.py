"""The host's side of a recording: which thread runs the steps, where it waits for data, and what it was in at an instant."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from perfaudit.trace.intervals import Intervals, union
from perfaudit.trace.recording import Recording, Spans
from perfaudit.trace.runtime_names import call_of
from perfaudit.trace.steps import IS_STEP

# PyTorch marks each `next` of a DataLoader; Lightning, Ignite and others mark theirs.
_NEXT_BATCH = re.compile(
    r"^enumerate\(Data(Loader|Pipe)\)|^\[pl\].*(train_dataloader_next|dataloader_next|fetch_next_train)|"
    r"^(\w+[./:])*((train_)?dataloader_next|data_?loader_next|get_train_batch)$"
)
# What people call theirs, as whole words; a thread that launches kernels inside does more than wait.
_DATA_WORDS = re.compile(
    r"^\W*(data[ _]?load(ing|er)?|load[ _]?(data|batch)|(get|next|fetch)[ _]?(data|batch|sample)s?(_data)?|data[ "
    r"_]?(wait|time|fetch)|"
    r"batch[ _]?(loading|fetch)|dataloader[ _]?(wait|next|iter)|wait[ _]?for[ _]?data)\W*$",
    re.IGNORECASE,
)
_FRAME_OF_LOADER = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): __next__")
SINGLE_PROCESS = "SingleProcess"  # in the mark of a DataLoader that has no workers


def main_thread(recording: Recording) -> int | None:
    """The thread that marks the steps, else the one with most operators; None for a trace of devices alone."""
    spans = recording.annotations
    for row in range(len(spans)):
        if IS_STEP(recording.names[spans.name[row]]):
            return spans.thread[row]
    threads = Counter(recording.operators.thread) or Counter(recording.calls.thread)
    return threads.most_common(1)[0][0] if threads else None


def data_waits(recording: Recording, threads: frozenset[int]) -> Intervals:
    """Where one of these threads waits for the next batch."""
    return union((start, end) for start, end, _ in data_wait_spans(recording, threads))


def data_wait_spans(recording: Recording, threads: frozenset[int]) -> list[tuple[float, float, str]]:
    """The same one by one, with the names of the marks."""
    names = recording.names
    marked = [bool(_NEXT_BATCH.search(name)) for name in names]
    worded = [bool(_DATA_WORDS.match(name)) for name in names]
    found = [
        (spans.start[row], spans.end[row], names[spans.name[row]])
        for spans in (recording.operators, recording.annotations)
        for row in range(len(spans))
        if marked[spans.name[row]] and spans.thread[row] in threads
    ]
    spans = recording.annotations
    by_word = [row for row in range(len(spans)) if worded[spans.name[row]] and spans.thread[row] in threads]
    launched = launch_times(recording) if by_word else []
    found += [
        (spans.start[row], spans.end[row], names[spans.name[row]])
        for row in by_word
        if bisect_left(launched, spans.start[row]) == bisect_left(launched, spans.end[row])
    ]
    if not found and len(recording.frames):
        of_loader = [bool(_FRAME_OF_LOADER.search(name)) for name in names]
        frames = recording.frames
        found = [
            (frames.start[row], frames.end[row], names[frames.name[row]])
            for row in range(len(frames))
            if of_loader[frames.name[row]] and frames.thread[row] in threads
        ]
    return found


def launch_times(recording: Recording) -> list[float]:
    """When each call begins that hands over a kernel or a copy, in the order of time."""
    calls = recording.calls
    launches = [call_of(name) in ("launch", "copy") for name in recording.names]
    return sorted(calls.start[row] for row in range(len(calls)) if launches[calls.name[row]])


@dataclass(frozen=True, slots=True)
class Instant:
    """A time of a host thread of which somebody asks what it was in. weight: how much of what is asked about it stands for."""

    time: float
    thread: int
    weight: float = field(default=1.0, compare=False)


class Nested:
    """Spans of each thread with the span that each lies in, so that what holds an instant is found without looking at all."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._rows: dict[int, list[int]] = {}
        for row, thread in enumerate(spans.thread):
            self._rows.setdefault(thread, []).append(row)
        self._starts: dict[int, list[float]] = {}
        self._around: dict[int, int] = {}  # the row around a row

    def rows_around(self, instant: Instant) -> list[int]:
        """The rows that hold an instant, the outermost first."""
        starts = self._starts.get(instant.thread)
        if starts is None:
            starts = self._index(instant.thread)
        at = bisect_right(starts, instant.time) - 1
        found: list[int] = []
        row = self._rows[instant.thread][at] if at >= 0 else -1
        while row >= 0:
            if self._spans.end[row] > instant.time or self._spans.start[row] == instant.time:
                found.append(row)
            row = self._around.get(row, -1)
        return found[::-1]

    def _index(self, thread: int) -> list[float]:
        start, end = self._spans.start, self._spans.end
        rows = self._rows.setdefault(thread, [])
        rows.sort(key=lambda row: (start[row], -end[row]))
        open_rows: list[int] = []
        for row in rows:
            while open_rows and end[open_rows[-1]] <= start[row]:
                open_rows.pop()
            if open_rows:
                self._around[row] = open_rows[-1]
            open_rows.append(row)
        self._starts[thread] = [start[row] for row in rows]
        return self._starts[thread]


def around(spans: Spans, instants: Iterable[Instant]) -> dict[Instant, list[int]]:
    """The rows of these spans that hold each instant, the outermost first."""
    if spans.nested is None:
        spans.nested = Nested(spans)
    nested = spans.nested
    assert isinstance(nested, Nested)
    return {instant: nested.rows_around(instant) for instant in instants}
