"""Jobs of Slurm, as submitit runs them on one machine."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perfaudit.cluster import slurm
from perfaudit.cluster.kind import Kind, kind_here
from perfaudit.cluster.node import Place, answer
from perfaudit.cluster.slurm import SlurmNodes, slurm_nodes
from perfaudit.errors import NothingMeasured
from perfaudit.measure.elsewhere import Lost


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.1)
    return Place.here()


def test_without_sbatch_nothing_is_begun(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NothingMeasured, match="there is no sbatch here"), slurm_nodes(place, str):
        pass


class Job:
    """One that is done at once, on a node that has another number of cores than this machine."""

    job_id = "1"

    def __init__(self, place: Place, work: Any) -> None:
        self._found = (replace(kind_here(), cores=999), answer(work, ""))

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self._found


class Executor:
    """submitit's, as far as it is asked here."""

    def submit(self, there: Any, place: Place, work: Any) -> Job:
        assert there is slurm.do_there
        return Job(place, work)


def test_a_resumed_run_looks_for_the_nodes_kind_and_not_for_that_of_the_submitting_machine(place: Place) -> None:
    nodes = SlurmNodes(Executor(), place, str)
    like = Kind.from_json(nodes.kind_as_json)
    assert like.cores == 999 and like != kind_here() and not nodes.jobs
    resumed = SlurmNodes(Executor(), place, str, like)
    resumed.send(os.getcwd)
    assert not isinstance(resumed.next()[1], Lost)


@pytest.mark.slow
def test_work_runs_as_jobs_in_the_users_folder(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    with slurm_nodes(place, str, cluster="local") as nodes:
        sent = {nodes.send(os.getcwd), nodes.send(os.getcwd)}
        assert nodes.free == slurm.JOBS - 2
        assert {nodes.next() for _ in sent} == {(number, str(tmp_path)) for number in sent}
        assert nodes.kind == kind_here()
        nodes.send(partial(os._exit, 3))
        _, lost = nodes.next()
        assert isinstance(lost, Lost) and "of Slurm was lost" in lost.reason
        with pytest.raises(NothingMeasured, match="set TMPDIR to a folder that all nodes share"):
            nodes.share(str(tmp_path / "gone"))


@pytest.mark.slow
def test_a_job_on_a_node_of_another_kind_does_not_count(place: Place) -> None:
    pytest.importorskip("submitit")
    with slurm_nodes(place, str, replace(kind_here(), cores=999), "local") as nodes:
        nodes.send(os.getcwd)
        _, lost = nodes.next()
    assert isinstance(lost, Lost) and "ran on a node of another kind: cores" in lost.reason
