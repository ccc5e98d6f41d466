"""Which collective each kernel of communication belongs to."""

from __future__ import annotations

from perfaudit.trace import kernel_names
from perfaudit.trace.device_work import DeviceWork
from perfaudit.trace.host_threads import Instant, around
from perfaudit.trace.recording import COMMUNICATION


def operations_of(device: DeviceWork) -> dict[int, str]:
    """The collective of each row of communication, "" for unknown.

    A kernel of sends and receives does not tell what it is part of; its arguments, or the marks around its launch, do.
    """
    recording = device.recording
    work, calls, of = recording.work, recording.calls, device.launches.of
    rows = [row for row in device.rows if work.kind[row] == COMMUNICATION]
    at = {row: Instant(calls.start[of[row]], calls.thread[of[row]]) for row in rows if row in of}
    marks = [around(spans, at.values()) for spans in (recording.annotations, recording.operators)]
    found = {}
    for row in rows:
        names = [said.name] if (said := work.collectives.get(row)) is not None else []
        for spans, stacks in zip((recording.annotations, recording.operators), marks, strict=True):
            if row in at:
                names += [recording.names[spans.name[one]] for one in reversed(stacks[at[row]])]
        names = [name for name in names if name.startswith(("nccl:", "c10d::")) or (names and name == names[0])]
        operations = [kernel_names.operation_of(name) for name in [*names, device.name_of(row)]]
        found[row] = next((one for one in operations if one and one != "send_recv"), next(filter(None, operations), ""))
    return found
