"""Kernels that only change the layout of tensors for convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.trace import kernel_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.words import a_step, percent, short_name, times_a_step

RULES = ("PA211",)


def look(view: DeviceView) -> Iterator[Seen]:
    rows = [row for row in view.rows if kernel_names.is_layout_change(view.name_of(row))]
    lost = view.sum_of(rows)
    if not rows:
        return
    longest = max(rows, key=view.microseconds)
    yield Seen(
        "PA211",
        f"kernels that only change the layout of tensors for convolutions (`{short_name(view.name_of(longest), 40)}`, "
        f"{times_a_step(view, len(rows))}) take {percent(view, lost)} of the time ({a_step(view, lost)})",
        lost,
    )
