"""What the matrix products of a device run on, as far as the names of kernels tell."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from perfaudit.trace import kernel_names
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.recording import COMPUTE

KNOWN = 0.5  # of the time in matrix products, from which on what is known stands for all
# Architectures that kernels are named after, and their compute capabilities.
_NAMED = (
    (re.compile(r"sm90_|hopper_|nvjet|_gmma"), (9, 0)),
    (re.compile(r"sm80_|sm86_|ampere_|cutlass_80"), (8, 0)),
    (re.compile(r"turing_|sm75_|cutlass_75"), (7, 5)),
    (re.compile(r"volta_.*884|sm70_"), (7, 0)),
)


@dataclass(frozen=True, slots=True)
class Products:
    """Microseconds in matrix products, by what they run on. tf32: those on tensor cores that are known to be TF32."""

    by_units: dict[str, float]
    tf32: float

    @property
    def all(self) -> float:
        return sum(self.by_units.values())

    @property
    def tensor_core_share(self) -> float | None:
        """The part on tensor cores; None without matrix products, or where most names do not tell."""
        known = self.by_units["tensor"] + self.by_units["float32"] + self.by_units["other"]
        return self.by_units["tensor"] / known if known and known >= KNOWN * self.all else None


def products_of(view: DeviceView) -> Products:
    """Of all kernels in the window."""
    names = view.recording.names
    spent: Counter[int] = Counter()
    for row in view.rows:
        if view.recording.work.kind[row] == COMPUTE:
            spent[view.recording.work.name[row]] += view.microseconds(row)  # type: ignore[assignment]  # counts microseconds
    by_units = dict.fromkeys(("tensor", "float32", "other", "unknown"), 0.0)
    tf32 = 0.0
    for number, microseconds in spent.items():
        name = names[number]
        if kernel_names.is_product(name):
            by_units[kernel_names.units_of(name)] += microseconds
            tf32 += microseconds * kernel_names.is_tf32(name)
    return Products(by_units, tf32)


def capability_of(view: DeviceView) -> tuple[int, int] | None:
    """The device's compute capability, from its properties, else from what kernels are named after; None where neither tells."""
    given = view.recording.capabilities.get(view.device)
    if given is not None:
        return given
    names = {view.recording.work.name[row] for row in view.rows}
    for pattern, capability in _NAMED:
        if any(pattern.search(view.recording.names[name]) for name in names):
            return capability
    return None
