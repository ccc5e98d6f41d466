"""What kind of machine a node is: figures of two kinds are never mixed. Standard library only."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from perfaudit import __version__
from perfaudit.machine.limits import ROOT, text_of, total_memory, usable_cores


@dataclass(frozen=True, slots=True)
class Kind:
    """What two nodes must share. memory: GiB to two digits, because what the kernel keeps for itself differs."""

    processor: str
    cores: int
    memory: float
    accelerators: tuple[str, ...]
    system: str
    python: str
    torch: str
    perfaudit: str

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "accelerators": list(self.accelerators)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Kind:
        """Of `as_json`. Raises TypeError or KeyError for other data."""
        return cls(**{**data, "accelerators": tuple(data["accelerators"])})

    def __str__(self) -> str:
        devices = ", ".join(f"{count} x {name}" for name, count in Counter(self.accelerators).items())
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        return ", ".join(filter(None, [self.processor, cores, f"{self.memory:g} GiB", devices, f"torch {self.torch}"]))


def kind_here(root: Path = ROOT) -> Kind:
    """Of this machine, as this process may use it; asks no driver."""
    gib = total_memory() / 2**30
    digits = 1 - math.floor(math.log10(gib)) if gib > 0 else 0
    return Kind(
        processor=_processor(root),
        cores=usable_cores(root),
        memory=round(gib, digits),
        accelerators=_accelerators(root),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=next((found.version for found in distributions(name="torch")), "none"),
        perfaudit=__version__,
    )


def differs(one: Kind, other: Kind) -> str:
    """In words what two kinds differ in: "2 cores instead of 4"; "" where they are alike."""
    before, after = asdict(other), asdict(one)
    said = []
    for name, value in after.items():
        if value != before[name]:
            words = [f"{', '.join(v) or 'none'}" if isinstance(v, tuple) else f"{v}" for v in (value, before[name])]
            said.append(f"{name} {words[0]} instead of {words[1]}")
    return ", ".join(said)


def most_common(kinds: Sequence[Kind], own: Kind) -> Kind:
    """The kind of most nodes; of several, that of this machine, else the first."""
    counts = Counter(kinds)
    return max(counts, key=lambda kind: (counts[kind], kind == own))


def _processor(root: Path) -> str:
    for line in (text_of(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor()


def _accelerators(root: Path) -> tuple[str, ...]:
    """Names of NVIDIA's devices as the driver lists them in files."""
    names = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        for line in (text_of(file) or "").splitlines():
            name, _, value = line.partition(":")
            names += [value.strip()] if name.strip() == "Model" else []
    return tuple(names)
