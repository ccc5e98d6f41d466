"""Jobs of Slurm, as submitit runs them on one machine."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfaudit.cluster import slurm
from perfaudit.cluster.kind import Kind, kind_here
from perfaudit.cluster.node import UserPlace, answer
from perfaudit.cluster.slurm import SlurmNodes, slurm_nodes
from perfaudit.errors import NothingMeasured
from perfaudit.measure.elsewhere import Lost


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserPlace:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.1)
    return UserPlace.here()


def test_without_sbatch_nothing_is_begun(place: UserPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NothingMeasured, match="there is no sbatch here"), slurm_nodes(place, str):
        pass


class Job:
    """One that is done at once, on a node that has another number of cores than this machine."""

    job_id = "1"

    def __init__(self, work: Any, log: Path) -> None:
        self._found = (replace(kind_here(), cores=999), answer(work, ""))
        self.paths = SimpleNamespace(stdout=log, submission_file=log)
        self.is_done = True

    def done(self) -> bool:
        return self.is_done

    def result(self) -> Any:
        return self._found


class DeadJob(Job):
    """One that is done, and of which there is no result. words: of submitit's error."""

    words = ""

    def result(self) -> Any:
        raise RuntimeError(self.words)


class Executor:
    """submitit's, as far as it is asked here."""

    def __init__(self, job: type[Job] = Job, log: Path = Path("no log"), is_done: bool = True) -> None:
        self.job, self.log, self.is_done = job, log, is_done
        self.arrays: list[int] = []

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        self.arrays.append(0)
        yield

    def submit(self, there: Any, place: UserPlace, work: Any) -> Job:
        assert there is slurm.do_there
        self.arrays[-1] += 1
        job = self.job(work, self.log)
        job.is_done = self.is_done
        return job


def test_a_resumed_run_looks_for_the_nodes_kind_and_not_for_that_of_the_submitting_machine(place: UserPlace) -> None:
    nodes = SlurmNodes(Executor(), place, str)
    like = Kind.from_json(nodes.kind_as_json)
    assert like.cores == 999 and like != kind_here() and not nodes.jobs
    resumed = SlurmNodes(Executor(), place, str, like)
    resumed.send(os.getcwd)
    assert not isinstance(resumed.next()[1], Lost)


def test_what_is_sent_before_anything_is_asked_for_is_one_array_and_said(place: UserPlace) -> None:
    said: list[str] = []
    executor = Executor()
    nodes = SlurmNodes(executor, place, said.append)
    for _ in range(slurm.JOBS):
        nodes.send(os.getcwd)
    assert (nodes.free, executor.arrays) == (0, [])
    nodes.next()
    assert (nodes.free, executor.arrays) == (1, [slurm.JOBS])
    nodes.send(os.getcwd)
    nodes.next()
    assert executor.arrays == [slurm.JOBS, 1]
    assert said == [f"submitted 8 jobs of Slurm: {', '.join('1' * slurm.JOBS)}", "submitted job 1 of Slurm"]


def test_what_sbatch_was_given_is_said_once(place: UserPlace, tmp_path: Path) -> None:
    said: list[str] = []
    text = tmp_path / "7_submission.sh"
    text.write_text("#!/bin/bash\n# Parameters\n#SBATCH --exclusive\n#SBATCH --nodes=1\n\n# command\nsrun python\n")
    nodes = SlurmNodes(Executor(log=text), place, said.append)
    for _ in range(2):
        nodes.send(os.getcwd)
        nodes.next()
    given = "what sbatch was given:\n#SBATCH --exclusive\n#SBATCH --nodes=1"
    assert said == ["submitted job 1 of Slurm", given, "submitted job 1 of Slurm"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, which pass where somebody sleeps."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + 100 * seconds))
    return now


def test_a_queue_in_which_nothing_starts_is_left(place: UserPlace, clock: list[float]) -> None:
    for ask in (SlurmNodes.next, lambda nodes: nodes.kind_as_json):
        nodes = SlurmNodes(Executor(is_done=False), place, str)
        nodes.send(os.getcwd)
        began = clock[0]
        with pytest.raises(NothingMeasured, match="no job of Slurm has started in 30 min: other work holds the nodes"):
            ask(nodes)
        assert slurm.QUEUE_SECONDS < clock[0] - began < slurm.QUEUE_SECONDS + 30


def test_a_job_that_runs_is_waited_for_however_long_it_takes(
    place: UserPlace, clock: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.touch()
    nodes = SlurmNodes(Executor(log=log, is_done=False), place, str)
    number = nodes.send(os.getcwd)

    def sleep(seconds: float) -> None:
        clock[0] += 100.0
        nodes.jobs[number].is_done = clock[0] > 3 * slurm.QUEUE_SECONDS

    monkeypatch.setattr("time.sleep", sleep)
    assert nodes.next() == (number, place.folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "job 1 of Slurm was lost (RuntimeError)"),
        ("\nJob 1 ended\nwith code 9", "job 1 of Slurm was lost (Job 1 ended)"),
        ("failed with trace:\n---\n  File x\nModuleNotFoundError: No module named 'perfaudit'\n---\nsee the log",
         "job 1 of Slurm was lost (ModuleNotFoundError: No module named 'perfaudit')"),
    ],
)  # fmt: skip
def test_a_lost_job_says_why_in_a_line(place: UserPlace, words: str, said: str) -> None:
    job = type("Dead", (DeadJob,), {"words": words})
    nodes = SlurmNodes(Executor(job), place, str)
    nodes.send(os.getcwd)
    assert nodes.next()[1] == Lost(said)


REFUSAL = """\
sbatch: error: invalid partition specified: nowhere
sbatch: error: Batch job submission failed: Invalid partition name specified
"""
REFUSED = (
    "sbatch refused the job: invalid partition specified: nowhere; Batch job submission failed: Invalid partition name "
    "specified; it reads the partition and the account from SBATCH_PARTITION and SBATCH_ACCOUNT"
)
FailedJobError = type("FailedJobError", (RuntimeError,), {"__module__": "submitit.core.utils"})


class RefusingExecutor(Executor):
    """One whose sbatch takes no job. submitit calls it at the end of a batch."""

    error: Exception = FailedJobError(REFUSAL)

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        self.arrays.append(0)
        yield
        raise self.error


@pytest.mark.parametrize("ask", [SlurmNodes.next, lambda nodes: nodes.kind_as_json])
def test_what_sbatch_refuses_is_one_sentence_and_no_traceback(place: UserPlace, ask: Any) -> None:
    nodes = SlurmNodes(RefusingExecutor(), place, str)
    nodes.send(os.getcwd)
    with pytest.raises(NothingMeasured) as refused:
        ask(nodes)
    assert (str(refused.value), refused.value.exit_code) == (REFUSED, 3)


def test_a_fault_of_ours_on_the_way_to_sbatch_is_none_of_its(place: UserPlace) -> None:
    nodes = SlurmNodes(RefusingExecutor(), place, str)
    nodes.executor.error = RuntimeError("cannot be pickled")
    nodes.send(os.getcwd)
    with pytest.raises(RuntimeError, match="cannot be pickled"):
        nodes.next()


def test_a_real_sbatch_that_refuses_is_one_sentence(place: UserPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    programs = Path("programs")
    programs.mkdir()
    for name in ("sbatch", "srun"):
        (programs / name).write_text(f"#!/bin/sh\ncat >&2 <<END\n{REFUSAL}END\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs.absolute()}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(NothingMeasured) as refused, slurm_nodes(place, str) as nodes:
        nodes.send(os.getcwd)
        nodes.next()
    assert str(refused.value) == REFUSED


class Odd(Exception):
    """One that pickle cannot make anew."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__("odd")


def raise_odd() -> None:
    raise Odd(1, 2)


@pytest.mark.parametrize(
    ("work", "error", "said"),
    [(partial(int, "x"), ValueError, "invalid literal"), (raise_odd, RuntimeError, "Odd: odd")],
)
def test_a_fault_of_ours_is_no_lost_job(place: UserPlace, work: Any, error: type[Exception], said: str) -> None:
    _, found = slurm.do_there(place, work)
    with pytest.raises(error, match=said) as raised:
        pickle.loads(pickle.dumps(found)).value()
    assert "in do_there" in raised.value.__notes__[0]  # where it was raised there


@pytest.mark.slow
def test_work_runs_as_jobs_in_the_users_folder(place: UserPlace, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    with slurm_nodes(place, str, cluster="local") as nodes:
        sent = {nodes.send(os.getcwd), nodes.send(os.getcwd)}
        assert nodes.free == slurm.JOBS - 2
        assert {nodes.next() for _ in sent} == {(number, str(tmp_path)) for number in sent}
        assert nodes.kind == kind_here()
        assert not logging.getLogger("submitit").isEnabledFor(logging.WARNING)  # which it prints where reports go
        nodes.send(partial(os._exit, 3))
        _, lost = nodes.next()
        assert isinstance(lost, Lost) and "of Slurm was lost" in lost.reason
        nodes.send(partial(int, "x"))
        with pytest.raises(ValueError, match="invalid literal"):
            nodes.next()
        with pytest.raises(NothingMeasured, match="set TMPDIR to a folder that all nodes share"):
            nodes.share(str(tmp_path / "gone"))
        assert list(tmp_path.iterdir()) == [tmp_path / ".perfaudit"]
    assert list(tmp_path.iterdir()) == []  # nothing is left of what submitit wrote


@pytest.mark.slow
def test_a_job_on_a_node_of_another_kind_does_not_count(place: UserPlace) -> None:
    pytest.importorskip("submitit")
    with slurm_nodes(place, str, replace(kind_here(), cores=999), "local") as nodes:
        nodes.send(os.getcwd)
        _, lost = nodes.next()
    assert isinstance(lost, Lost) and "ran on a node of another kind: cores" in lost.reason


def test_the_level_of_the_log_of_submitit_is_put_back() -> None:
    logger = logging.getLogger("submitit")
    before = logger.level
    with slurm._errors_only("submitit"):
        assert logger.level == logging.ERROR
    assert logger.level == before != logging.ERROR
