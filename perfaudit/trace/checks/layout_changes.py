"""Kernels that only change the layout of tensors for convolutions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfaudit.trace import kernel_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.words import a_step, launched_a_step, percent, short_name

RULES = ("PA211",)


_CONVOLUTION = re.compile(r"conv|fprop|dgrad|wgrad|winograd|igemm|im2col|miopen", re.IGNORECASE)


def _has_convolutions(view: DeviceView) -> bool:
    names = {view.name_of(row) for row in view.rows} | {
        view.recording.names[name] for name in set(view.recording.operators.name)
    }
    return any(_CONVOLUTION.search(name) and not kernel_names.is_layout_change(name) for name in names)


def look(view: DeviceView) -> Iterator[Seen]:
    rows = [row for row in view.rows if kernel_names.is_layout_change(view.name_of(row))]
    if not rows or not _has_convolutions(view):
        return
    lost = view.busy_with(rows)
    longest = max(rows, key=view.microseconds)
    yield Seen(
        "PA211",
        f"kernels that only change the layout of tensors for convolutions (`{short_name(view.name_of(longest), 40)}`, "
        f"{launched_a_step(view, rows)}) take {percent(view, lost)} of the time ({a_step(view, lost)})",
        lost,
    )
