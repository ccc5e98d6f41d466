"""What the matrix products of a device run on, as far as the names of kernels tell."""

from __future__ import annotations

import re
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
    (re.compile(r"volta_|sm70_"), (7, 0)),  # Turing runs these too
)


@dataclass(frozen=True, slots=True)
class Products:
    """Microseconds of the window in matrix products, by what they run on. tf32: those on tensor cores that are TF32 by name."""

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
    work = view.recording.work
    by_units: dict[str, list[int]] = {"tensor": [], "float32": [], "other": [], "unknown": []}
    tf32 = []
    for name, rows in view.rows_by_name.items():
        text = view.recording.names[name]
        if work.kind[rows[0]] == COMPUTE and kernel_names.is_product(text):
            by_units[kernel_names.units_of(text)] += rows
            tf32 += rows if kernel_names.is_tf32(text) else []
    return Products({units: view.busy_with(rows) for units, rows in by_units.items()}, view.busy_with(tf32))


def is_amd(view: DeviceView) -> bool:
    """Whether the device is AMD's, by its name or by kernels of rocBLAS: PyTorch switches TF32 on for NVIDIA's alone."""
    names = view.recording.names
    return "AMD" in view.recording.device_names.get(view.device, "") or any(
        names[name].startswith("Cijk_") for name in view.rows_by_name
    )


def capability_of(view: DeviceView) -> tuple[int, int] | None:
    """The device's compute capability, from its properties, else from what kernels are named after; None where neither tells."""
    given = view.recording.capabilities.get(view.device)
    if given is not None:
        return given
    names = view.rows_by_name
    for pattern, capability in _NAMED:
        if any(pattern.search(view.recording.names[name]) for name in names):
            return capability
    return None
