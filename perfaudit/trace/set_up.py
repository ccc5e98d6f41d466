"""Where a trace without marked steps has done what a program does once: taken memory, loaded kernels, created streams."""

from __future__ import annotations

from perfaudit.trace import runtime_names
from perfaudit.trace.device_work import DeviceWork
from perfaudit.trace.intervals import Total
from perfaudit.trace.warm_up import LONG_CALL

MANY_LATER = 15  # calls like those of a set-up in the second half of the work, from which on they are no set-up
OF_SET_UP = 0.3  # of the time until the end of a set-up that its calls take


def set_up_end(device: DeviceWork) -> float:
    """The end of the last such call of the first half, if these calls are what the device waits for until there; the start of the
    window for no set-up.

    Where about as many come later, they belong to the program's usual work.
    """
    calls, of = device.recording.calls, device.launches.of
    rows = set_up_calls(device)
    launched = sorted(calls.start[of[row]] for row in device.rows if row in of)
    if device.steps or not rows or not launched:
        return device.start
    middle = launched[len(launched) // 2]
    early = [row for row in rows if calls.start[row] <= middle]
    if len(rows) - len(early) >= MANY_LATER:
        return device.start
    end = device.start
    spent = 0.0
    for row in early:
        spent += calls.end[row] - max(calls.start[row], device.start)
        if spent >= OF_SET_UP * (calls.end[row] - device.start):
            end = max(end, calls.end[row])
    return min(end, device.end)


def set_up_calls(device: DeviceWork) -> list[int]:
    """Rows of calls that take memory of the device, and of long calls on an idle device, in the order of start."""
    calls, names = device.recording.calls, device.recording.names
    found = [row for row in device.calls("allocation") if runtime_names.is_device_memory(names[calls.name[row]])]
    return sorted([*found, *loading_calls(device)], key=calls.start.__getitem__)


def loading_calls(device: DeviceWork) -> list[int]:
    """Rows of calls that take long on an idle device: they load code, or create something."""
    calls = device.recording.calls
    long = [
        row
        for row in (*device.calls("launch"), *device.calls("other"))
        if calls.end[row] - calls.start[row] > LONG_CALL
    ]
    busy = Total(device.busy if long else [])
    return [
        row
        for row in long
        if busy.between(calls.start[row], calls.end[row]) < 0.5 * (calls.end[row] - calls.start[row])
    ]
