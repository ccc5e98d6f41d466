"""`perfaudit trace`, whoever reads the files: processes of this machine, or, with `--on`, nodes of a cluster, a share each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from perfaudit.machine.limits import usable_cores
from perfaudit.trace.report import read_all

if TYPE_CHECKING:
    from perfaudit.measure.elsewhere import Nodes, Work
    from perfaudit.trace.file_result import FileResult
    from perfaudit.trace.trace_files import TraceFile

Window = tuple[int, int] | None
Progress = Callable[[int, int, str], None]
MOST_PROCESSES = 8  # on a machine, of which each may need a gigabyte
SHARES_OF_NODE = 4  # so that one with long files, or one that is lost, has others wait for a quarter of its part


def read_here(
    files: Sequence[TraceFile], window: Window, jobs: int, progress: Progress | None = None
) -> list[FileResult]:
    """What is in each file, read by so many processes of this machine, 0 for as many as it has cores."""
    processes = jobs or min(usable_cores(), MOST_PROCESSES)
    return read_all(files, window, min(processes, len(files)), progress)


def read_on(
    nodes: Nodes, files: Sequence[TraceFile], window: Window, jobs: int, progress: Progress
) -> list[FileResult]:
    """The same, read by nodes that see the files under the same paths. Raises NothingMeasured where all nodes are lost."""
    from perfaudit.measure.elsewhere import run_on

    size = math.ceil(len(files) / (SHARES_OF_NODE * nodes.width))
    shares = [files[first : first + size] for first in range(0, len(files), size)]
    reading = _Reading(shares, window, jobs, lambda done: progress(done, len(files), files[done - 1].name))
    run_on(nodes, [reading], if_lost="")
    return reading.found


@dataclass(slots=True)
class _Reading:
    """Shares of files as a series: see `measure.elsewhere.Spread`. told: called with how many files are read."""

    shares: Sequence[Sequence[TraceFile]]
    window: Window
    jobs: int
    told: Callable[[int], object]
    taken: int = 0
    found: list[FileResult] = field(default_factory=list)
    stage: ClassVar[str] = "traces"

    def is_open(self) -> bool:
        return self.taken < len(self.shares)

    def has_time(self) -> bool:
        return True

    def work(self, ahead: int) -> Work | None:
        number = self.taken + ahead
        return partial(read_here, self.shares[number], self.window, self.jobs) if number < len(self.shares) else None

    def take(self, found: list[FileResult]) -> None:
        self.found += found
        self.taken += 1
        self.told(len(self.found))

    def measure(self) -> None:
        self.take(read_here(self.shares[self.taken], self.window, self.jobs))

    def set_to_keep(self) -> None:
        return None

    def recall(self, piece: object, state: object) -> None:
        """Nothing: no session before this one has read any."""
