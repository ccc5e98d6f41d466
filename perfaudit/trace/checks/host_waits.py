"""The host waits until the device has done everything, so that nothing is queued and the device is idle afterwards."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from perfaudit.trace import kernel_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant, around
from perfaudit.trace.idle import Idle
from perfaudit.trace.recording import MEMORY
from perfaudit.trace.recurrence import is_rare, time_in_words
from perfaudit.trace.wait_before import WaitBefore
from perfaudit.trace.words import called_a_step, percent

RULES = ("PA601", "PA602", "PA604", "PA104", "PA102", "PA908")
_SHAPE_FROM_DATA = re.compile(r"^aten::(nonzero|masked_select|_?unique\w*|argwhere|repeat_interleave|bincount)$")
# cuDNN and MIOpen time algorithms inside these, which waits.
_CHOOSES = re.compile(r"convolution|conv(_transpose)?[123]d|cudnn|miopen", re.IGNORECASE)
_READS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
JUST_BEFORE = 50.0  # microseconds from a copy to the wait for its stream, in the same operator
_WORDS = {
    "PA601": "the host reads a value from the device ({what}, {often})",
    "PA908": "algorithms of convolutions are timed and chosen ({what}, {often})",
    "PA602": "the host waits until the device has finished ({what}, {often})",
    "PA604": "an operation whose shape depends on values makes the host wait for the device ({what}, {often})",
    "PA104": "a copy to the device makes the host wait ({what}, {often})",
    "PA102": "a copy to the device from memory that is not pinned makes the host wait ({what}, {often})",
}


def look(view: DeviceView) -> Iterator[Seen]:
    stretches = [one for one in view.idle if one.cause == "sync"]
    waits = view.waits
    if not stretches or not waits:
        return
    calls = view.recording.calls
    stacks = around(view.recording.operators, [Instant(calls.start[row], calls.thread[row]) for row in waits])
    copies = _copies_by_wait(view, waits)
    kinds = {row: _kind(view, row, stacks[Instant(calls.start[row], calls.thread[row])], copies) for row in waits}
    lost: Counter[str] = Counter()
    whats: dict[str, Counter[str]] = {}
    at: dict[str, list[tuple[float, Instant]]] = {}
    by_rule: dict[str, list[Idle]] = {}
    before = WaitBefore(view, waits)
    due_to: Counter[int] = Counter()
    for stretch in stretches:
        row = before.wait(stretch)
        rule, what = kinds[row]
        by_rule.setdefault(rule, []).append(stretch)
        length = stretch.end - stretch.start
        lost[rule] += length  # type: ignore[assignment]  # counts microseconds
        due_to[row] += length  # type: ignore[assignment]  # the same
        whats.setdefault(rule, Counter())[what] += length  # type: ignore[assignment]  # the same
        at.setdefault(rule, []).append((length, Instant(calls.start[row], calls.thread[row], length)))
    # Without the wait the host would go on by as much earlier as it has waited, and by no more.
    saved: Counter[str] = Counter()
    for row, length in due_to.items():
        saved[kinds[row][0]] += min(length, calls.end[row] - calls.start[row])  # type: ignore[assignment]  # the same
    for rule, microseconds in lost.items():
        of_rule = [row for row, kind in kinds.items() if kind[0] == rule]
        what = ", ".join(f"`{name}`" for name, _ in whats[rule].most_common(2))
        said = _WORDS[rule].format(what=what, often=called_a_step(view, of_rule))
        yield Seen(
            rule,
            f"{said}. The device is then idle until the next kernel arrives, for {percent(view, microseconds)} of the time "
            f"({time_in_words(view, by_rule[rule])})",
            saved[rule],
            tuple(instant for _, instant in sorted(at[rule], key=lambda pair: -pair[0])),
            0.0 if is_rare(view, by_rule[rule]) else None,
        )


def _kind(view: DeviceView, call: int, stack: list[int], copies: dict[int, list[int]]) -> tuple[str, str]:
    """The rule for a wait, and what the reader is told that it is: the operator it lies in, else the call itself."""
    operators = view.recording.operators
    names = [view.recording.names[operators.name[row]] for row in stack]
    call_name = view.recording.names[view.recording.calls.name[call]]
    what = next((name for name in names if not name.startswith("Optimizer.")), call_name)
    if shaped := next((name for name in names if _SHAPE_FROM_DATA.match(name)), None):
        return "PA604", shaped
    if any(_CHOOSES.search(name) for name in names) and not copies.get(call):
        return "PA908", what
    if read := next((name for name in _READS if name in names), None):
        return "PA601", read
    for row in copies.get(call, []):
        name = view.name_of(row)
        direction = kernel_names.direction_of(name)
        if direction == "HtoD":
            return ("PA102" if kernel_names.is_pageable_copy(name) else "PA104"), what
        if direction == "DtoH":
            return "PA601", what
    return "PA602", what


def _copies_by_wait(view: DeviceView, waits: list[int]) -> dict[int, list[int]]:
    """The copies that a wait is for: its own, or one that its thread handed over just before it."""
    calls = view.recording.calls
    own: dict[int, list[int]] = {}
    for row in view.rows:
        if view.recording.work.kind[row] == MEMORY and row in view.launches.of:
            own.setdefault(view.launches.of[row], []).append(row)
    handed_over = sorted(own, key=calls.end.__getitem__)
    ends = [calls.end[call] for call in handed_over]
    found: dict[int, list[int]] = {}
    for wait in waits:
        rows = own.get(wait)
        before = bisect_right(ends, calls.start[wait]) - 1
        if rows is None and before >= 0 and calls.start[wait] - ends[before] <= JUST_BEFORE:
            copy = handed_over[before]
            rows = own[copy] if calls.thread[copy] == calls.thread[wait] else None
        if rows:
            found[wait] = rows
    return found
