"""Nodes of a Slurm cluster, through submitit: each set of processes is a job that has a node for itself.

For clusters without Ray. A job waits in Slurm's queue, so this pays where sets take minutes or the queue is short.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfaudit.cluster.kind import Kind, differs, kind_here
from perfaudit.cluster.node import Answer, Place, answer, enter, is_there
from perfaudit.errors import NothingMeasured
from perfaudit.measure.elsewhere import Lost, Work

JOBS = 8  # at once
MINUTES = 60  # that Slurm gives a job
POLL_SECONDS = 1.0

Say = Callable[[str], object]


@dataclass(slots=True)
class SlurmNodes:
    """See `measure.elsewhere.Nodes`. kind: of the first node that has answered, None before; the others must be of it."""

    executor: Any  # submitit's
    place: Place
    say: Say
    kind: Kind | None = None
    width: int = JOBS
    jobs: dict[int, Any] = field(default_factory=dict)
    _tickets: int = 0

    @property
    def free(self) -> int:
        return self.width - len(self.jobs)

    @property
    def kind_as_json(self) -> dict[str, Any]:
        """Where no node has answered yet, one is asked: the machine that submits jobs is often of another kind."""
        if self.kind is None:
            self._ask(_IsThere(self.place.folder))
        return self.kind.as_json() if self.kind is not None else {}

    @property
    def words(self) -> str:
        return f"nodes of Slurm, up to {self.width} jobs at once" + (f": {self.kind}" if self.kind else "")

    def send(self, work: Work) -> int:
        self._tickets += 1
        self.jobs[self._tickets] = self.executor.submit(do_there, self.place, work)
        return self._tickets

    def next(self) -> tuple[int, Any | Lost]:
        while not (done := [number for number, job in self.jobs.items() if job.done()]):
            time.sleep(POLL_SECONDS)
        number = done[0]
        job = self.jobs.pop(number)
        try:
            kind, found = job.result()
        except (
            Exception
        ) as error:  # submitit raises classes of its own for jobs that died, and passes on what a job has raised
            lost = Lost(f"job {job.job_id} of Slurm was lost ({str(error).strip().splitlines()[0]})")
            self.say(f"{lost.reason}; what was measured there is measured again")
            return number, lost
        self.kind = self.kind or kind
        if kind != self.kind:
            lost = Lost(f"job {job.job_id} ran on a node of another kind: {differs(kind, self.kind)}")
            self.say(f"{lost.reason}; name a partition of one kind with SBATCH_PARTITION")
            return number, lost
        return number, found.value()

    def share(self, folder: str) -> None:
        if not self._ask(_IsThere(folder)):
            raise NothingMeasured(f"a node does not see {folder}: set TMPDIR to a folder that all nodes share")

    def _ask(self, work: Work) -> Any:
        """What a node gives, before all else is sent to any. Raises NothingMeasured where the job is lost."""
        number = self.send(work)
        while not self.jobs[number].done():
            time.sleep(POLL_SECONDS)
        _, found = self.next()
        if isinstance(found, Lost):
            raise NothingMeasured(found.reason)
        return found

    def close(self) -> None:
        for job in self.jobs.values():
            with contextlib.suppress(Exception):  # of whatever kind: the others must end as well
                job.cancel()
        self.jobs.clear()


@dataclass(frozen=True, slots=True)
class _IsThere:
    folder: str

    def __call__(self) -> bool:
        return is_there(self.folder)


def do_there(place: Place, work: Work) -> tuple[Kind, Answer]:
    """The kind of this node, and what the work gives here."""
    trouble = enter(place)
    return kind_here(), answer(work, trouble)


@contextlib.contextmanager
def slurm_nodes(place: Place, say: Say, like: Kind | None = None, cluster: str = "slurm") -> Iterator[SlurmNodes]:
    """Jobs of Slurm, each with a node for itself. Partition, account and the like are read by sbatch from SBATCH_* variables.

    cluster: as submitit calls it; "local" runs jobs as processes of this machine. Raises NothingMeasured without an sbatch.
    """
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise NothingMeasured("--on slurm: there is no sbatch here; run the command where jobs of Slurm are submitted")
    import submitit

    folder = Path(place.folder) / ".perfaudit" / "slurm"
    executor = submitit.AutoExecutor(folder=str(folder / "%j"), cluster=cluster)
    executor.update_parameters(timeout_min=MINUTES, name="perfaudit")
    if cluster == "slurm":
        executor.update_parameters(nodes=1, slurm_exclusive="", slurm_array_parallelism=JOBS)
    nodes = SlurmNodes(executor, place, say, like)
    say(f"measuring on {nodes.words}")
    try:
        yield nodes
    finally:
        nodes.close()
