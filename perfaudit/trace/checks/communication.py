"""Communication during which the device computes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from perfaudit.trace.buffer_broadcasts import buffer_broadcasts
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant, around
from perfaudit.trace.intervals import intersection, total, union
from perfaudit.trace.recording import COMMUNICATION
from perfaudit.trace.words import a_step, launched_a_step, percent, size_in_words

RULES = ("PA903", "PA708")
SMALL = 256 << 10  # bytes of an all-reduce; buckets of DistributedDataParallel have 25 MiB
WELL = 0.9  # of communication overlapped, and LITTLE of the window exposed: as good as it gets
LITTLE = 0.05
MANY = 30  # of them in a step: one for each parameter
MANY_OF_UNKNOWN = 100  # of them, where no sizes are known: so many buckets would be 2.5 GiB of gradients
_BYTES = {
    "float": 4,
    "float32": 4,
    "double": 8,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "int": 4,
    "long": 8,
    "byte": 1,
    "char": 1,
}


def look(view: DeviceView) -> Iterator[Seen]:
    rows = [row for row in view.rows if view.recording.work.kind[row] == COMMUNICATION]
    exposed = total(view.exposed_communication)
    if not rows or not exposed:
        return
    overlap = total(intersection(view.communication, view.compute)) / total(view.communication)
    if overlap >= WELL and exposed < LITTLE * view.length:
        return  # no schedule hides all of it
    calls, of = view.recording.calls, view.launches.of
    at = tuple(
        Instant(calls.start[of[row]], calls.thread[of[row]])
        for row in sorted(rows, key=view.microseconds, reverse=True)[:200]
        if row in of
    )
    lost = f"{percent(view, exposed)} of the time ({a_step(view, exposed)})"
    if _one_by_one(view, rows):
        sizes = _sizes(view, rows)
        yield Seen(
            "PA708",
            f"gradients are reduced one by one ({launched_a_step(view, rows)}{f', {sizes}' if sizes else ''}): the device "
            f"communicates and does not compute for {lost}",
            exposed,
            at,
        )
        return
    yield Seen(
        "PA903",
        f"the device communicates and does not compute for {lost}; {100 * overlap:.0f} % of communication is overlapped. "
        f"{_pattern(view, rows)}{_buffers(view)}",
        exposed,
        at,
    )


def _buffers(view: DeviceView) -> str:
    """What is said of buffers that every forward pass sends to all ranks."""
    rows = buffer_broadcasts(view)
    if not rows:
        return ""
    work = view.recording.work
    exposed = total(intersection(view.exposed_communication, union((work.start[row], work.end[row]) for row in rows)))
    return (
        f". DistributedDataParallel broadcasts the model's buffers before each forward pass ({launched_a_step(view, rows)}, "
        f"{a_step(view, exposed)}): broadcast_buffers=False saves that where all ranks may keep their own"
    )


def _one_by_one(view: DeviceView, rows: list[int]) -> bool:
    reduced = [row for row in rows if view.operations[row] == "all_reduce"]
    known = {row: size for row in reduced if (size := _bytes(view, row)) is not None}
    if known:
        return _often(view, known) >= MANY and sum(size <= SMALL for size in known.values()) > 0.8 * len(known)
    return _often(view, reduced) >= MANY_OF_UNKNOWN and _are_in_backward(view, reduced)


def _often(view: DeviceView, rows: Collection[int]) -> float:
    """How many of these a step launches; of a trace without steps how many there are."""
    return view.step_times.launched_in_one(rows) if view.steps else len(rows)


def _are_in_backward(view: DeviceView, rows: list[int]) -> bool:
    """Whether nearly all were handed over in the backward pass; those of a model split over devices are in both passes."""
    calls, of, operators = view.recording.calls, view.launches.of, view.recording.operators
    at = [Instant(calls.start[of[row]], calls.thread[of[row]]) for row in rows if row in of]
    stacks = around(operators, at)
    backward = [name.startswith("autograd::engine::evaluate_function") for name in view.recording.names]
    inside = sum(any(backward[operators.name[one]] for one in stacks[instant]) for instant in at)
    return inside > 0.9 * len(rows)


def _pattern(view: DeviceView, rows: list[int]) -> str:
    """How many collectives of which kind a step has, and how large they are."""
    by_name: dict[str, list[int]] = {}
    for row in rows:
        by_name.setdefault(view.operations[row] or "other kinds", []).append(row)
    most = sorted(by_name, key=lambda name: -len(by_name[name]))[:3]
    words = ", ".join(f"{name} {launched_a_step(view, by_name[name])}" for name in most)
    sizes = _sizes(view, rows)
    return f"Collectives: {words}{f' ({sizes})' if sizes else ''}"


def _sizes(view: DeviceView, rows: list[int]) -> str:
    sizes = sorted(size for row in rows if (size := _bytes(view, row)) is not None)
    if not sizes:
        return ""
    small, large = (size_in_words(size) for size in (sizes[0], sizes[-1]))
    return f"{small} each" if small == large else f"{small} to {large} each"


def _bytes(view: DeviceView, row: int) -> int | None:
    said = view.recording.work.collectives.get(row)
    if said is None or said.elements is None or not said.dtype:
        return None
    width = next((width for name, width in _BYTES.items() if said.dtype.lower() == name), None)
    return None if width is None else said.elements * width
