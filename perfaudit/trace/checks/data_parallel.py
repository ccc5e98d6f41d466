"""One process drives several devices by torch.nn.DataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.words import a_step, percent

RULES = ("PA701",)
_ITS_FUNCTIONS = ("Broadcast", "Scatter", "Gather")  # of torch.nn.parallel, as the profiler names them


def look(view: DeviceView) -> Iterator[Seen]:
    names = set(view.recording.names)
    if len(set(view.recording.work.device)) < 2:
        return
    if "DataParallel.forward" not in names and not {"Broadcast", "Gather"} <= names:
        return
    lost = sum(one.end - one.start for one in view.idle if one.cause in ("launch", "sync", "other"))
    said = ", ".join(f"`{name}`" for name in ("DataParallel.forward", *_ITS_FUNCTIONS) if name in names)
    yield Seen(
        "PA701",
        f"one process drives {len(set(view.recording.work.device))} devices by DataParallel ({said}), copies the model on every "
        f"step and launches for one after the other: this one is idle for {percent(view, lost)} of the time "
        f"({a_step(view, lost)})",
        lost,
    )
