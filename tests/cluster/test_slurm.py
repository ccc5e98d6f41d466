"""Jobs of Slurm, as submitit runs them on one machine."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from perfaudit.cluster import slurm
from perfaudit.cluster.kind import kind_here
from perfaudit.cluster.node import Place
from perfaudit.cluster.slurm import slurm_nodes
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
