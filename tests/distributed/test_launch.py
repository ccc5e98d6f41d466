"""The place of a process among those of a launcher, from the variables of each launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from perfaudit.distributed.launch import Launcher, RankPlace, key_on_node, launcher_of, place_of
from perfaudit.processes import first_ancestor_without, started_at

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}

SRUN = {
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, (0, 1, 0, 1)),
        (TORCHRUN, (3, 4, 1, 2)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2, 1, 2)),
        ({"RANK": "x", "WORLD_SIZE": "2"}, (0, 1, 0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "2"}, (0, 1, 0, 1)),
        ({"RANK": "0"}, (0, 1, 0, 1)),
        (
            dict(zip((f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")), "2312", strict=True)),
            (2, 3, 1, 2),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, 1, 2)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0"}, (1, 2, 1, 2)),
        # The shell of a batch job has these before `srun` has started anything.
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}, (0, 1, 0, 1)),
        (SRUN | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}, (0, 7, 0, 2)),
        (SRUN | {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}, (3, 7, 1, 2)),
        (SRUN | {"SLURM_PROCID": "6", "SLURM_LOCALID": "0", "SLURM_NODEID": "3"}, (6, 7, 0, 1)),
    ],
)  # fmt: skip
def test_each_launchers_variables(environment: dict[str, str], place: tuple[int, ...]) -> None:
    found = place_of(environment)
    assert (found.rank, found.ranks, found.local_rank, found.local_ranks) == place
    assert found.is_launched == (place[1] > 1)


def test_ranks_of_one_start_have_one_key_and_those_of_another_have_another() -> None:
    others = [TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"}, TORCHRUN | {"MASTER_PORT": "29501"}]
    keys = [place_of(each).key for each in (TORCHRUN, *others)]
    assert keys[0] == keys[1] != keys[2]
    assert RankPlace().key == ""
    assert place_of(TORCHRUN).is_on_several_nodes


def test_two_starts_of_mpich_by_one_user_have_two_keys_on_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variables tell nothing of the start; the process that has started the ranks does."""
    places = [place_of({"PMI_RANK": str(rank), "PMI_SIZE": "2"}) for rank in (0, 1)]
    keys = []
    for launcher in (Launcher(70, 1, "mpiexec"), Launcher(71, 1, "mpiexec")):
        monkeypatch.setattr("perfaudit.distributed.launch.launcher_of", lambda pid, variable, by=launcher: by)
        keys += [key_on_node(each) for each in places]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert len(keys[0]) == len(places[0].key)  # a name that `sweep` knows


def test_the_launcher_is_the_nearest_ancestor_without_the_variable() -> None:
    """Through a shell that has the variable too, as with `torchrun --no-python bash -c ...`."""
    ask = "import os; from perfaudit.distributed.launch import launcher_of; print(launcher_of(os.getpid(), 'RANK').pid)"
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -c "{ask}"; true'],
        capture_output=True, text=True, check=True, env={**os.environ, "RANK": "0"},
    )  # fmt: skip
    assert done.stdout.strip() == str(os.getpid())
    assert first_ancestor_without(os.getpid(), "NO_SUCH_VARIABLE") == os.getppid()


def test_a_launcher_that_is_killed_is_gone() -> None:
    """Also where its number has gone to another process."""
    found = launcher_of(os.getpid(), "NO_SUCH_VARIABLE")
    if found is None:
        pytest.skip("a shell has started the tests")
    assert not found.is_gone
    assert replace(found, since=found.since + 1).is_gone
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        since = started_at(child.pid)
        assert since is not None
        started = Launcher(child.pid, since, "python")
        assert not started.is_gone
        child.kill()
    assert started.is_gone


def test_ranks_that_are_started_by_hand_in_two_shells_meet() -> None:
    ask = "import os; from perfaudit.distributed.launch import key_on_node, place_of; print(key_on_node(place_of(os.environ)))"
    start = f'RANK="$0" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$1" "{sys.executable}" -c "{ask}"; true'

    def key(rank: int, port: int) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", start, str(rank), str(port)], capture_output=True, text=True, check=True
        )
        return done.stdout

    assert key(0, 29500) == key(1, 29500) != key(0, 29501)
