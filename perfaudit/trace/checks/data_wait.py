"""The device is idle while the training waits for its next batch."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import SINGLE_PROCESS, Instant, data_wait_spans, main_thread
from perfaudit.trace.idle import longest_first
from perfaudit.trace.recurrence import is_rare, time_in_words
from perfaudit.trace.words import percent

RULES = ("PA101", "PA901")


def look(view: DeviceView) -> Iterator[Seen]:
    stretches = longest_first(view.idle, "data")
    if not stretches:
        return
    spans = [
        span
        for span in data_wait_spans(view.recording, view.threads)
        if span[1] > view.host_start and span[0] < view.host_end
    ]
    alone = sum(end - start for start, end, name in spans if SINGLE_PROCESS in name)
    is_alone = alone > 0.5 * sum(end - start for start, end, _ in spans)
    thread = main_thread(view.recording)
    at = (
        ()
        if thread is None
        else tuple(Instant((one.start + one.end) / 2, thread, one.end - one.start) for one in stretches)
    )
    lost = sum(one.end - one.start for one in stretches)
    how = "loads it in the training process" if is_alone else "does not have it ready"
    yield Seen(
        "PA101" if is_alone else "PA901",
        f"the device is idle for {percent(view, lost)} of the time ({time_in_words(view, stretches)}), because the training "
        "waits for its next "
        f"batch: the loader {how}",
        lost,
        at,
        0.0 if is_rare(view, stretches) else None,
    )
