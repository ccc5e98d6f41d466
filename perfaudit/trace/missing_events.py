"""What events a file lacks: calls that launched its work, work that its calls launched, or most of both."""

from __future__ import annotations

from perfaudit.trace.device_work import DeviceWork
from perfaudit.trace.intervals import Intervals, Total

SAMPLED = 3.0  # ids for each operator that is there; whole traces have 1.0 to 1.1, as each operator takes the next
UNMATCHED = 0.2  # of the work without a call that launched it, from which on the file is said to be filtered
LOST = 0.05  # of the launches without work, from which on the same is said; whole traces have none
MOSTLY_LOST = 0.2  # of them, from which on idle time may be work that is missing


def lacks_launches(device: DeviceWork) -> bool:
    """Whether the calls that launched part of the work are missing."""
    return lost_launches(device) > UNMATCHED


def lost_launches(device: DeviceWork) -> float:
    """The share of the work whose calls are missing.

    What was in the queue of a stream when the recording began was launched before: that is not missing.
    """
    work, of = device.recording.work, device.launches.of
    first: dict[int, int] = {}
    for number, row in enumerate(device.rows):
        if row in of:
            first.setdefault(work.stream[row], number)
    missing = sum(row not in of and number > first.get(work.stream[row], -1) for number, row in enumerate(device.rows))
    return missing / max(1, len(device.rows))


def lost_work(device: DeviceWork, captures: Intervals) -> float:
    """The share of launches in the steps whose work is missing; 0 where most work is not matched to its launches either.

    captures: where graphs are captured, which launches nothing.
    """
    calls, of = device.recording.calls, device.launches.of
    if sum(row in of for row in device.rows) < (1 - UNMATCHED) * len(device.rows):
        return 0.0
    matched = set(of.values())
    captured = Total(captures)
    launches = [
        row
        for row in device.calls("launch")
        if device.host_start <= calls.start[row] <= device.host_end
        and calls.correlation[row] > 0
        and captured.between(calls.start[row], calls.end[row]) <= 0
    ]
    return sum(row not in matched for row in launches) / max(1, len(launches))
