"""Long stretches in which a device is idle because its host does something else before it launches more."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant, around, launch_times, main_thread
from perfaudit.trace.idle import Idle
from perfaudit.trace.recording import Spans
from perfaudit.trace.wait_before import WaitBefore

LONG = 1000.0  # microseconds; shorter ones are the usual cost of operators and launches
BEYOND = 3.0  # times the wait before it, from which on a stretch is longer than the wait explains
COVERS = 0.5  # of the stretch that one operator must take, to be what the host does
LONGER = 1.5  # times the stretch; an operator that takes longer holds much else, as the forward of a model does
_COMPILES = re.compile(r"compile|dynamo|inductor|CompiledFxGraph", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HostWork:
    """A stretch of idle time, and what the host does then: the name of an operator, "" for Python."""

    stretch: Idle
    operator: str
    at: Instant


def host_work(view: DeviceView) -> list[HostWork]:
    """The longest first. Only where the work that ends the stretch was launched after it had begun, and where the host is in one
    operator that launches nothing, or in none and in no call of the runtime.
    """
    if view.is_sample:
        return []  # what the host did is not in the file
    main = main_thread(view.recording)
    launched = launch_times(view.recording)
    before = WaitBefore(view, view.waits) if view.waits else None
    asked: list[tuple[Idle, list[Instant]]] = []
    for one in view.idle:
        length = one.end - one.start
        if length < LONG or not _is_the_hosts(view, one, before):
            continue
        thread = view.gaps[one.gap].thread  # the backward pass has one of its own
        threads = [each for each in dict.fromkeys((thread, main)) if each is not None]
        asked.append((one, [Instant((one.start + one.end) / 2, each, length) for each in threads]))
    instants = [instant for _, several in asked for instant in several]
    stacks = [around(spans, instants) for spans in (view.recording.calls, view.recording.operators)]
    compiling = _compiling(view, instants)
    found = []
    for stretch, several in asked:
        if not several:
            continue
        instant = next((each for each in several if stacks[1][each]), several[-1])
        calls, operators = (stack[instant] for stack in stacks)
        if calls or instant in compiling:
            continue
        operator = _idle_operator(view, stretch, operators, launched)
        if operator is not None:
            found.append(HostWork(stretch, operator, instant))
    return sorted(found, key=lambda one: one.stretch.start - one.stretch.end)


def _is_the_hosts(view: DeviceView, stretch: Idle, before: WaitBefore | None) -> bool:
    """Whether the device is idle because the host does other things: it launches what comes next later, or nothing any more.

    After a wait for the device, only what goes far beyond that wait.
    """
    gap = view.gaps[stretch.gap]
    is_tail = gap.end >= view.end and bool(view.steps)
    if not is_tail and (gap.launch is None or gap.launch[1] <= stretch.start):
        return False
    if stretch.cause == "sync" and before is not None:
        calls, row = view.recording.calls, before.wait(stretch)
        return stretch.end - stretch.start > BEYOND * (calls.end[row] - calls.start[row])
    return stretch.cause in ("launch", "other")


def _idle_operator(view: DeviceView, stretch: Idle, rows: list[int], launched: list[float]) -> str | None:
    """The operator that takes most of the stretch and launches nothing; "" where the host is in none, None where it is in many.

    launched: when kernels and copies are handed over, in the order of time.
    """
    if not rows:
        return "" if stretch.cause != "launch" else None
    operators: Spans = view.recording.operators
    length = stretch.end - stretch.start
    for row in rows:  # the outermost first
        start, end = operators.start[row], operators.end[row]
        inside = min(end, stretch.end) - max(start, stretch.start)
        launches = bisect_left(launched, end) > bisect_left(launched, start)
        if inside >= COVERS * length and end - start <= LONGER * length and not launches:
            return view.recording.names[operators.name[row]]
    return None


def _compiling(view: DeviceView, instants: list[Instant]) -> set[Instant]:
    """Those at which code is compiled, which has a rule of its own."""
    names = [bool(_COMPILES.search(name)) for name in view.recording.names]
    found: set[Instant] = set()
    for spans in (view.recording.annotations, view.recording.operators, view.recording.frames):
        if len(spans):
            rows = around(spans, instants)
            found |= {instant for instant in instants if any(names[spans.name[row]] for row in rows[instant])}
    return found
