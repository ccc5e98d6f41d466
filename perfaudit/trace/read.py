"""Reads a trace file into a `Recording`, whatever profiler of PyTorch wrote it: categories, units and ids become one form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from perfaudit.trace import job, runtime_names
from perfaudit.trace.far_events import leave_out_far_events
from perfaudit.trace.json_events import Arguments, Event, EventReader
from perfaudit.trace.kernel_names import class_of
from perfaudit.trace.recording import KINDS, MEMORY, Collective, Recording, Spans
from perfaudit.trace.steps import IS_STEP, Step, chosen_part
from perfaudit.trace.trace_files import NotReadable, TraceFile, open_trace

# Rows that are kept of a file; a trace of 130 MB has about so many. Of a larger one, some steps are analysed.
MAX_ROWS = 500_000
LONGEST_NUMBER = 40  # letters of a time that is written as a text
MOST_PARTS = 8  # that are tried, each half as long as the one before
LARGEST = 1e19  # a time; nanoseconds since 1970 are 1.8e18
LONGEST = 1e15  # microseconds: 30 years; nanoseconds of eleven days
MOST_OPEN = 10_000  # events of one thread that have begun and not ended; Python's deepest stack has a thousand
ENOUGH_IDS = 200  # of operators, from which on their spread tells something
_EPOCH_MICROSECONDS = 1e14  # of 1973; relative times are smaller
_EPOCH_NANOSECONDS = 1e17  # microseconds since 1970 are 1.8e15, nanoseconds 1.8e18
# A launch takes 2 to 20 us. Where the queue is full it takes as long as a kernel, but then others are short: a file in which
# all of them take longer than this counts nanoseconds.
_CALL_MICROSECONDS = 300.0
# Categories, in lower case, by what becomes of their events.
_CATEGORIES = {
    "kernel": "kernel",
    "mtia_ccp_events": "kernel",
    "mtia_workload": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "copy",
    "memcpy": "copy",
    "memset": "copy",
    "concurrent_kernel": "kernel",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "hip_runtime": "call",
    "xpu_runtime": "call",
    "mtia_runtime": "call",
    "privateuse1_runtime": "call",
    "runtime": "call",
    "cpu_op": "operator",
    "operator": "operator",
    "user_annotation": "annotation",
    "cpu_user_annotation": "annotation",
    "python_function": "frame",
    "python": "frame",
}


def kind_of_category(category: str) -> str | None:
    """What becomes of the events of a category."""
    return _CATEGORIES.get(category.lower())


_HALVES = ("B", "E")  # events that are written when they begin, and again when they end
Row = Callable[[Event, float, float], None]


def read_trace(file: TraceFile, window: tuple[int, int] | None = None, max_rows: int = MAX_ROWS) -> Recording:
    """The recording of one file. window: numbers of the first and the last step that are asked for. Raises NotReadable.

    Of a file with more than `max_rows` rows, some steps from the middle of the window are kept, and its notes have "part".
    """
    builder = _Builder(file.name, max_rows)
    builder.read(file)
    if builder.is_full:
        marks, whole, share = builder.marks, builder.whole, max_rows / builder.rows
        for _ in range(MOST_PARTS):  # a part of the file may have more than its share
            builder = _Builder(file.name, max_rows, chosen_part(marks, whole, share, window))
            builder.read(file)
            if not builder.is_full:
                break
            share /= 2
        else:
            raise NotReadable(f"more than {max_rows:,} events at one time")
        builder.recording.notes.add("part")
    return builder.finish()


class _Builder:
    """Fills a recording with the events of a file. only: microseconds since the first event, outside of which nothing is kept."""

    def __init__(self, name: str, max_rows: int, only: tuple[float, float] | None = None) -> None:
        self.recording = Recording(name, only=only)
        self.marks: list[Step] = []  # also when full
        self._first, self._last = float("inf"), float("-inf")
        self.rows = 0
        self.is_full = False
        self._max_rows = max_rows
        self._only = only
        self._base: float | None = None
        self._names: dict[str, int] = {}
        self._threads: dict[tuple[Any, Any], int] = {}  # Any: as the trace has them
        self._grids: dict[tuple[Any, ...], int] = {}
        self._odd = 0
        self._by_category: dict[Any, Row | None] = {}
        self._times_as_text = False
        self._ids: set[int] = set()  # of operators
        self._begun: dict[tuple[Any, Any], list[Event]] = {}  # by process and thread; the innermost last
        self._unpaired = 0
        self._operators_before_work = 0
        self._work_before_operators = 0

    def read(self, file: TraceFile) -> None:
        """Read all of it. Raises NotReadable."""
        with open_trace(file) as stream:
            reader = EventReader(stream)
            for events in reader.pieces():
                self._take(events)
            self.recording.bytes_read = reader.bytes_read
            self.recording.head = reader.head
            self.recording.notes |= reader.notes
        recording = self.recording
        if not recording.events:
            raise NotReadable(f"no trace: {_why_empty(recording.notes)}")
        if self._odd and not self.rows and self._only is None:
            raise NotReadable(
                f"none of its {recording.events:,} events has a usable time: durations are negative, or no numbers"
            )

    @property
    def whole(self) -> tuple[float, float]:
        """When the first event begins and the last one ends, kept or not."""
        recording = self.recording
        rows = (recording.work, recording.calls, recording.operators, recording.annotations, recording.frames)
        starts = [min(one.start) for one in rows if len(one)]
        ends = [max(one.end) for one in rows if len(one)]
        return min([self._first, *starts]), max([self._last, *ends])

    def _take(self, events: list[Event]) -> None:
        self.recording.events += len(events)
        categories = self._by_category
        only = self._only
        for event in events:
            if event.ph != "X" and (event.ph not in _HALVES or not self._pair(event)):
                continue
            start, duration = event.ts, event.dur
            if start.__class__ is str or duration.__class__ is str:
                self._times_as_text = True
                start, duration = _number(start), _number(duration)
            try:
                if self._base is None and -LARGEST < start < LARGEST and 0 <= duration < LONGEST:
                    self._base = start + 0
                start = start - (self._base or 0)
                end = start + duration
                # A negative duration, NaN, or no duration of this world.
                is_usable = -LARGEST < start <= end < start + LONGEST
            except (TypeError, OverflowError):
                self._odd += duration is not None or start is None
                continue
            if not is_usable:
                self._odd += 1
                continue
            category = event.cat
            try:
                row = categories[category]
            except (KeyError, TypeError):
                row = self._row_of(category, event)
                if category.__class__ is str:
                    categories[category] = row
            if row is None or (only is not None and (end < only[0] or start > only[1])):
                continue
            self.rows += 1
            if self.rows > self._max_rows and not self.is_full:
                self.is_full = True
                self._by_category = categories = {
                    key: value and self._note_dropped for key, value in categories.items()
                }
            row(event, start, end)

    def _pair(self, event: Event) -> bool:
        """Whether an event that has its beginning or its end alone is the end of one; it becomes the whole of it then."""
        try:
            begun = self._begun.setdefault((event.pid, event.tid), [])
        except TypeError:
            return False
        if event.ph == "B":
            if len(begun) < MOST_OPEN:
                begun.append(event)
            else:
                self._unpaired += 1
            return False
        at = len(begun) - 1
        while at >= 0 and event.name not in (None, "", begun[at].name):
            at -= 1
        if at < 0:
            self._unpaired += 1
            return False
        self._unpaired += len(begun) - at - 1  # those inside have no end
        first = begun[at]
        del begun[at:]
        start, end = _number(first.ts), _number(event.ts)
        self._times_as_text |= isinstance(first.ts, str)
        try:
            event.dur = end - start
        except TypeError:
            event.dur = None
        event.ts, event.name, event.cat = start, first.name, first.cat or event.cat
        event.args = first.args or event.args
        return True

    def _row_of(self, category: Any, event: Event) -> Row | None:  # Any: as the trace has it
        """What takes the events of a category; None for what is not kept: flows, annotations repeated for the device,
        counters.
        """
        if isinstance(category, str) and category:
            kind = _CATEGORIES.get(category.lower())
        else:  # of torch.autograd's profiler before PyTorch 1.8
            kind = {"CPU functions": "operator", "CUDA functions": "kernel"}.get(str(event.pid))
        if kind is not None and self.is_full:
            return self._note_dropped
        if isinstance(category, str):
            words = set(re.split(r"[^a-z]+", category.lower()))
            for word, device in (("mtia", "mtia"), ("xpu", "xpu"), ("npu", "npu"), ("enqueue", "npu")):
                if word in words:
                    self.recording.device_kind = device
            self.recording.has_known_devices |= kind_of_category(category) == "kernel" and "mtia" not in words
        rows: dict[str | None, Row] = {
            "kernel": self._kernel,
            "copy": self._copy,
            "call": self._call,
            "operator": self._operator,
            "annotation": self._annotation,
            "frame": self._frame,
        }
        return rows.get(kind)

    def _note_dropped(self, event: Event, start: float, end: float) -> None:
        """An event that is not kept, since there are too many."""
        self._first, self._last = min(self._first, start), max(self._last, end)
        self._take_mark(event, start, end)

    def _kernel(self, event: Event, start: float, end: float) -> None:
        self._work(event, start, end, -1)

    def _copy(self, event: Event, start: float, end: float) -> None:
        self._work(event, start, end, MEMORY)

    def _work(self, event: Event, start: float, end: float, kind: int) -> None:
        work, args = self.recording.work, event.args
        name = event.name if event.name.__class__ is str else str(event.name)
        if kind < 0:
            kind = MEMORY if name.startswith(("Memcpy", "Memset")) else KINDS.index(class_of(name))
            if args is not None and args.collective is not None:
                kind = KINDS.index("communication")
        if not work.start:
            self._operators_before_work = len(self.recording.operators)
        if kind == KINDS.index("communication"):
            work.collectives[len(work)] = _collective(name, args)
        work.start.append(start)
        work.end.append(end)
        work.name.append(self._name(name))
        work.kind.append(kind)
        work.device.append(_integer(args and args.device, _integer(event.pid, 0)))
        work.stream.append(_integer(args and args.stream, _integer(event.tid, 0)))
        work.correlation.append(_integer(args and args.correlation, -1))
        moved = None if args is None else args.bytes if args.bytes is not None else args.bytes_new
        work.bytes.append(_integer(moved, -1))
        work.grid.append(-1 if args is None or args.grid is None else self._grid(args.grid))

    def _call(self, event: Event, start: float, end: float) -> None:
        args = event.args
        self._span(self.recording.calls, event, start, end)
        self.recording.calls.correlation.append(_integer(args and args.correlation, -1))

    def _operator(self, event: Event, start: float, end: float) -> None:
        if isinstance(event.name, str) and event.name.startswith("ProfilerStep"):
            self._annotation(event, start, end)
        else:
            if not self.recording.operators.start:
                self._work_before_operators = len(self.recording.work)
            self._span(self.recording.operators, event, start, end)
            if event.args is not None and event.args.external_id.__class__ is int:
                self._ids.add(event.args.external_id)

    def _annotation(self, event: Event, start: float, end: float) -> None:
        self._take_mark(event, start, end)
        self._span(self.recording.annotations, event, start, end)

    def _take_mark(self, event: Event, start: float, end: float) -> None:
        if isinstance(event.name, str) and (mark := IS_STEP(event.name)):
            self.marks.append(Step(start, end, int(mark[1])))

    def _frame(self, event: Event, start: float, end: float) -> None:
        self._span(self.recording.frames, event, start, end)

    def _span(self, spans: Spans, event: Event, start: float, end: float) -> None:
        spans.start.append(start)
        spans.end.append(end)
        name = event.name
        spans.name.append(self._name(name if name.__class__ is str else str(name)))
        key = (event.pid, event.tid)
        try:
            thread = self._threads.get(key, -1)
        except TypeError:  # a list or an object
            key = (str(event.pid), str(event.tid))
            thread = self._threads.get(key, -1)
        if thread < 0:
            thread = self._threads[key] = len(self.recording.threads)
            self.recording.threads.append((str(event.pid), str(event.tid)))
        spans.thread.append(thread)

    def _name(self, name: str) -> int:
        index = self._names.get(name)
        if index is None:
            index = self._names[name] = len(self.recording.names)
            self.recording.names.append(name)
        return index

    def _grid(self, grid: Any) -> int:  # Any: JSON
        key = tuple(grid) if grid.__class__ is list else (str(grid),)
        try:
            return self._grids.setdefault(key, len(self._grids))
        except TypeError:  # lists in it
            return self._grids.setdefault((str(grid),), len(self._grids))

    def finish(self) -> Recording:
        """The recording, with times in microseconds and what its head says of rank and devices."""
        recording = self.recording
        recording.base = float(self._base or 0.0)
        if self._odd:
            recording.notes.add("odd-events")
        if self._unpaired or any(self._begun.values()):
            recording.notes.add("unpaired")
        if self._times_as_text:
            recording.notes.add("times-as-text")
        if len(recording.frames):
            recording.notes.add("stacks")
        if len(self._ids) >= ENOUGH_IDS:
            recording.spread_of_ids = (max(self._ids) - min(self._ids)) / len(self._ids)
        if _counts_nanoseconds(recording):
            recording.notes.add("nanoseconds")
            _scale(recording, 1e-3)
        leave_out_far_events(recording)
        recording.is_work_apart = (
            self._operators_before_work > len(recording.operators) / 2
            or self._work_before_operators > len(recording.work) / 2
        )
        job.take_head(recording)
        return recording


def _why_empty(notes: set[str]) -> str:
    if "odd-events" in notes:
        return "nothing in its list is an event"
    return "cut off inside its first event" if "truncated" in notes else "its list of events is empty"


def _collective(name: str, args: Arguments | None) -> Collective:
    if args is None:
        return Collective(name)
    elements = _integer(args.elements, -1)
    return Collective(
        str(args.collective) if args.collective else name,
        elements if elements >= 0 else None,
        str(args.dtype or ""),
        # Groups of one name may have other ranks elsewhere: `split_group` gives all its parts one name.
        " ".join(str(part) for part in (args.group, args.group_ranks) if part not in (None, "")),
    )


_DIGITS = re.compile(r"-?\d+")


def _integer(value: Any, default: int) -> int:  # Any: JSON
    """A number, also of a text such as "7" or "stream 7"."""
    if value.__class__ is int:
        return value if -(1 << 62) < value < 1 << 62 else default
    if value.__class__ is str:
        found = _DIGITS.search(value[:40])
        return _integer(int(found[0]), default) if found else default
    return default


def _number(value: Any) -> Any:  # Any: JSON
    """A time that is written as a text; None where it is no number."""
    if not isinstance(value, str):
        return value
    if len(value) > LONGEST_NUMBER:
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return None


def _counts_nanoseconds(recording: Recording) -> bool:
    if recording.base > _EPOCH_MICROSECONDS:
        return recording.base > _EPOCH_NANOSECONDS
    calls = recording.calls
    launches = [
        calls.end[row] - calls.start[row]
        for row in range(0, len(calls), max(1, len(calls) // 2000))
        if runtime_names.call_of(recording.names[calls.name[row]]) == "launch"
    ]
    return len(launches) >= 5 and min(launches) > _CALL_MICROSECONDS and all(map(float.is_integer, launches))


def _scale(recording: Recording, factor: float) -> None:
    recording.base *= factor
    for rows in (recording.work, recording.calls, recording.operators, recording.annotations, recording.frames):
        for row in range(len(rows)):
            rows.start[row] *= factor
            rows.end[row] *= factor
    if recording.only is not None:
        recording.only = (recording.only[0] * factor, recording.only[1] * factor)
