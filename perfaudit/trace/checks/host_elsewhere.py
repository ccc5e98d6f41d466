"""The host computes on the CPU, or is in Python, for so long that the device runs out of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_work import host_work
from perfaudit.trace.recurrence import is_rare, time_in_words
from perfaudit.trace.whereabouts import whereabouts
from perfaudit.trace.words import percent

RULES = ("PA910",)


def look(view: DeviceView) -> Iterator[Seen]:
    found = host_work(view)
    stretches = [one.stretch for one in found]
    lost = sum(one.end - one.start for one in stretches)
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
        f"the device is idle for {percent(view, lost)} of the time ({time_in_words(view, stretches)}), because the host {what} "
        "and launches nothing meanwhile",
        lost,
        at,
        0.0 if is_rare(view, stretches) else None,
    )
