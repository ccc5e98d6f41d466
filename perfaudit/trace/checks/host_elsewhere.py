"""The host computes on the CPU, or is in Python, for so long that the device runs out of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_work import host_work
from perfaudit.trace.whereabouts import whereabouts
from perfaudit.trace.words import a_step, percent

RULES = ("PA910",)


def look(view: DeviceView) -> Iterator[Seen]:
    found = host_work(view)
    lost = sum(one.stretch.end - one.stretch.start for one in found)
    if not lost:
        return
    taken: Counter[str] = Counter()
    for one in found:
        taken[one.operator] += one.stretch.end - one.stretch.start  # type: ignore[assignment]  # counts microseconds
    operators = [f"`{name}`" for name, _ in taken.most_common(3) if name]
    at = tuple(one.at for one in found)
    place = whereabouts(view.recording, at)
    if 2 * taken[""] <= lost:
        what = f"is in {', '.join(operators)}"
    elif place.source:
        what = f"runs {place.source_line}"
    elif place.annotation:
        what = f"is in `{place.annotation}`"
    else:
        return  # what the host does is not recorded
    yield Seen(
        "PA910",
        f"the device is idle for {percent(view, lost)} of the time ({a_step(view, lost)}), because the host {what} and launches "
        "nothing meanwhile",
        lost,
        at,
    )
