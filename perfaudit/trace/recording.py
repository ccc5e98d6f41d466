"""One trace file in memory: columns of what devices did, of calls of the runtime, and of what ran on the host."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

MICROSECOND = 1e-6


@dataclass(slots=True)
class Collective:
    """What a trace says of a kernel of communication; None or "" where it does not.

    group: its name and its ranks, as the trace has them.
    """

    name: str = ""
    elements: int | None = None
    dtype: str = ""
    group: str = ""


@dataclass(slots=True)
class Work:
    """Kernels and copies of all devices, one row each, in the order of the file. Times in microseconds since `Recording.base`.

    kind: an index of KINDS. correlation: of the call that handed it over, -1 where it is not known. bytes: of a copy, -1 for
    unknown. grid: a number for each grid that kernels are launched with, -1 for unknown. collectives: by row.
    """

    start: array[float] = field(default_factory=lambda: array("d"))
    end: array[float] = field(default_factory=lambda: array("d"))
    name: array[int] = field(default_factory=lambda: array("l"))
    kind: bytearray = field(default_factory=bytearray)
    device: array[int] = field(default_factory=lambda: array("l"))
    stream: array[int] = field(default_factory=lambda: array("l"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    bytes: array[int] = field(default_factory=lambda: array("q"))
    grid: array[int] = field(default_factory=lambda: array("l"))
    collectives: dict[int, Collective] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)


KINDS = ("compute", "communication", "memory")
COMPUTE, COMMUNICATION, MEMORY = range(3)


@dataclass(slots=True)
class Spans:
    """Stretches of host threads, one row each. correlation: only of calls of the runtime."""

    start: array[float] = field(default_factory=lambda: array("d"))
    end: array[float] = field(default_factory=lambda: array("d"))
    name: array[int] = field(default_factory=lambda: array("l"))
    thread: array[int] = field(default_factory=lambda: array("l"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    nested: object = None  # `host_threads.Nested` of these rows, once somebody has asked what holds an instant

    def __len__(self) -> int:
        return len(self.start)


@dataclass(slots=True)
class Recording:
    """A trace file as it was read.

    names: texts that rows have by their index. threads: process and thread, as the trace names them, by index. device_names: by
    device, where the trace has properties. capabilities: of each device, its compute capability as (major, minor).
    notes: words of the report's `notes`. events: how many there were in the file, kept or not.
    """

    file: str
    names: list[str] = field(default_factory=list)
    threads: list[tuple[str, str]] = field(default_factory=list)
    work: Work = field(default_factory=Work)
    calls: Spans = field(default_factory=Spans)
    operators: Spans = field(default_factory=Spans)
    annotations: Spans = field(default_factory=Spans)
    frames: Spans = field(default_factory=Spans)  # of Python, where stacks were recorded
    device_names: dict[int, str] = field(default_factory=dict)
    capabilities: dict[int, tuple[int, int]] = field(default_factory=dict)
    rank: int | None = None
    world_size: int | None = None
    job: str = ""  # what ranks of one job have in common, where the trace says it
    is_work_apart: bool = False  # operators and work stand one behind the other in the file, and not by time
    export_of: str = ""  # the file that `--export` cut this one out of
    device_kind: str = "cuda"  # as PyTorch calls it; ROCm's is "cuda" too
    has_known_devices: bool = False  # kernels of CUDA, ROCm or XPU devices are in it
    spread_of_ids: float = 1.0  # of operators: how far their ids are apart for each that is there
    base: float = 0.0
    events: int = 0
    bytes_read: int = 0
    notes: set[str] = field(default_factory=set)
    head: dict[str, Any] = field(default_factory=dict)  # Any: JSON
    set_up: object = None  # `warm_up.SetUp` of these calls, once somebody has asked for it
    only: tuple[float, float] | None = None  # microseconds since `base` of what was kept of a file that is too large
