"""Nodes of a Slurm cluster, through submitit: each set of processes is a job that has a node for itself.

For clusters without Ray. A job waits in Slurm's queue, so this pays where sets take minutes or the queue is short. What is sent
before anything is asked for goes out as one array of sbatch.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import re
import secrets
import shutil
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfaudit.cluster.kind import Kind, differs, kind_here
from perfaudit.cluster.node import Answer, UserPlace, answer, enter, is_there
from perfaudit.errors import NothingMeasured
from perfaudit.measure.elsewhere import Lost, Work

JOBS = 8  # at once
MINUTES = 60  # that Slurm gives a job
POLL_SECONDS = 1.0
QUEUE_SECONDS = 1800.0  # for a job to start while none of ours runs
_ERROR = re.compile(r"[\w.]+(Error|Exception|Interrupt|Exit)\b")

Say = Callable[[str], object]


@dataclass(slots=True)
class SlurmNodes:
    """See `measure.elsewhere.Nodes`. kind: of the first node that has answered, None before; the others must be of it."""

    executor: Any  # submitit's
    place: UserPlace
    say: Say
    kind: Kind | None = None
    width: int = JOBS
    jobs: dict[int, Any] = field(default_factory=dict)
    has_told: bool = False  # with which options jobs are submitted
    _waiting: dict[int, Work] = field(default_factory=dict)  # not submitted yet
    _tickets: int = 0
    _idle_since: float = 0.0  # when a job of ours was last seen to run

    @property
    def free(self) -> int:
        return self.width - len(self.jobs) - len(self._waiting)

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
        self._waiting[self._tickets] = work
        return self._tickets

    def next(self) -> tuple[int, Any | Lost]:
        self._submit()
        return self._take(self._wait_for(self.jobs))

    def _submit(self) -> None:
        """Have sbatch take what was sent: one job, or an array of several. Raises NothingMeasured where it takes none."""
        if not self._waiting:
            return
        if not self.jobs:
            self._idle_since = time.monotonic()
        try:
            with self.executor.batch():
                submitted = {
                    number: self.executor.submit(do_there, self.place, work) for number, work in self._waiting.items()
                }
        except Exception as error:
            if not _is_of_submitit(error):
                raise
            raise NothingMeasured(
                f"sbatch refused the job: {_words_of_sbatch(error)}; it reads the partition and the account from "
                "SBATCH_PARTITION and SBATCH_ACCOUNT"
            ) from error
        self._waiting.clear()
        self.jobs |= submitted
        ids = [str(job.job_id) for job in submitted.values()]
        if len(ids) == 1:
            self.say(f"submitted job {ids[0]} of Slurm")
        else:
            self.say(f"submitted {len(ids)} jobs of Slurm: {', '.join(ids)}")
        if not self.has_told and (lines := _lines_of_sbatch(next(iter(submitted.values())))):
            self.has_told = True
            self.say("\n".join(["what sbatch was given:", *lines]))

    def _wait_for(self, numbers: Collection[int]) -> int:
        """The first of these jobs that is done. Raises NothingMeasured where none of ours runs, and none starts."""
        while True:
            for number in numbers:
                if self.jobs[number].done():
                    self._idle_since = time.monotonic()
                    return number
            if any(job.paths.stdout.exists() and not job.done() for job in self.jobs.values()):
                self._idle_since = time.monotonic()
            elif time.monotonic() - self._idle_since > QUEUE_SECONDS:
                raise NothingMeasured(
                    f"no job of Slurm has started in {QUEUE_SECONDS / 60:.0f} min: other work holds the nodes, or none is as "
                    "they ask for; squeue --me says why"
                )
            time.sleep(POLL_SECONDS)

    def _take(self, number: int) -> tuple[int, Any | Lost]:
        job = self.jobs.pop(number)
        try:
            kind, found = job.result()
        except Exception as error:  # classes of submitit's own: the job died, or could not load its work
            lost = Lost(f"job {job.job_id} of Slurm was lost ({_error_line(error)})")
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
        self._submit()
        _, found = self._take(self._wait_for([number]))
        if isinstance(found, Lost):
            raise NothingMeasured(found.reason)
        return found

    def close(self) -> None:
        for job in self.jobs.values():
            with contextlib.suppress(Exception):  # of whatever kind: the others must end as well
                job.cancel()
        self.jobs.clear()
        self._waiting.clear()


def _lines_of_sbatch(job: Any) -> list[str]:  # Any: submitit's
    """The lines of what sbatch was given for a job, or an array of some; [] where submitit has started it without sbatch."""
    file = job.paths.submission_file
    try:
        text = file.read_text(encoding="utf-8") if file.suffix == ".sh" else ""
    except OSError:
        return []
    return [line for line in text.splitlines() if line.startswith("#SBATCH ")]


def _is_of_submitit(error: Exception) -> bool:
    """Whether an error has a class of submitit's, which need not be installed: what sbatch says when it ends with an error."""
    return type(error).__module__.partition(".")[0] == "submitit"


def _words_of_sbatch(error: Exception) -> str:
    """What sbatch has said, in one line and without its name before each sentence."""
    lines = [
        line.strip().removeprefix("sbatch:").strip().removeprefix("error:").strip() for line in str(error).split("\n")
    ]
    return "; ".join(filter(None, lines)) or type(error).__name__


@dataclass(frozen=True, slots=True)
class _IsThere:
    folder: str

    def __call__(self) -> bool:
        return is_there(self.folder)


@dataclass(frozen=True, slots=True)
class Fault:
    """What work has raised that is not the user's: a fault of ours, which ends the command as it would here."""

    error: Exception

    def value(self) -> Any:
        raise self.error


def do_there(place: UserPlace, work: Work) -> tuple[Kind, Answer | Fault]:
    """The kind of this node, and what the work gives here."""
    trouble = enter(place)
    try:
        return kind_here(), answer(work, trouble)
    except Exception as error:
        return kind_here(), Fault(_as_sent(error))


def _as_sent(error: Exception) -> Exception:
    """The error with its traceback as a note; one of another class with its words where it cannot be sent."""
    where = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of whatever kind: classes say how they are pickled
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(where)
    return error


def _error_line(error: BaseException) -> str:
    """The line of what an error says that names an error, else its first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(filter(_ERROR.match, reversed(lines)), lines[0] if lines else type(error).__name__)


def ensure_reachable() -> None:
    """Raise NothingMeasured where jobs of Slurm cannot be submitted."""
    if shutil.which("sbatch") is None:
        raise NothingMeasured("--on slurm: there is no sbatch here; run the command where jobs of Slurm are submitted")


@contextlib.contextmanager
def _errors_only(name: str) -> Iterator[None]:
    """Without warnings of a logger inside: submitit warns of a cluster without accounting at each look at a job."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def load() -> Any:  # the module, which has no types where it is not installed
    """submitit. Raises ImportError."""
    import submitit

    return submitit


@contextlib.contextmanager
def slurm_nodes(place: UserPlace, say: Say, like: Kind | None = None, cluster: str = "slurm") -> Iterator[SlurmNodes]:
    """Jobs of Slurm, each with a node for itself. Partition, account and the like are read by sbatch from SBATCH_* variables.

    cluster: as submitit calls it; "local" runs jobs as processes of this machine. Raises NothingMeasured without an sbatch.
    """
    if cluster == "slurm":
        ensure_reachable()
    submitit = load()
    folder = Path(place.folder) / ".perfaudit" / f"slurm-{secrets.token_hex(4)}"
    executor = submitit.AutoExecutor(folder=str(folder / "%j"), cluster=cluster)
    executor.update_parameters(timeout_min=MINUTES, name="perfaudit")
    if cluster == "slurm":
        executor.update_parameters(nodes=1, slurm_exclusive="", slurm_array_parallelism=JOBS)
    nodes = SlurmNodes(executor, place, say, like)
    say(f"measuring on {nodes.words}")
    try:
        with _errors_only("submitit"):
            yield nodes
    finally:
        nodes.close()
        shutil.rmtree(folder, ignore_errors=True)  # what submitit sent, what came back, and what jobs printed
        with contextlib.suppress(OSError):
            folder.parent.rmdir()  # where it held nothing else
