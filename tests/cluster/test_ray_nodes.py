"""Nodes of a Ray cluster: Ray's own test cluster, several nodes on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from made_traces import Host, step_of_training

from perfaudit.cli.trace_nodes import read_here, read_on
from perfaudit.cluster import ray_nodes as module
from perfaudit.cluster.kind import kind_here
from perfaudit.cluster.node import UserPlace
from perfaudit.cluster.ray_nodes import RayNodes, ray_nodes
from perfaudit.errors import NothingMeasured, UserError
from perfaudit.measure.elsewhere import Lost, run_on
from perfaudit.trace.trace_files import find_traces

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # nodes do not find the modules of tests
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


@pytest.fixture
def place(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserPlace:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    return UserPlace.here()


def test_work_goes_to_both_nodes_in_the_users_folder(place: UserPlace, tmp_path: Path) -> None:
    said: list[str] = []
    with ray_nodes(place, said.append) as nodes:
        assert (nodes.width, nodes.free, nodes.kind) == (2, 2, kind_here())
        sent = {nodes.send(os.getcwd), nodes.send(os.getcwd)}
        assert nodes.free == 0
        assert {nodes.next() for _ in sent} == {(number, str(tmp_path)) for number in sent}
        nodes.send(partial(int, "x"))  # a fault of ours is no lost node
        with pytest.raises(ValueError, match="invalid literal"):
            nodes.next()
    assert said == [f"measuring on 2 nodes of Ray: {kind_here()}"]


def test_ray_prints_no_logs_of_a_node_that_is_lost(place: UserPlace, capfd: pytest.CaptureFixture[str]) -> None:
    """As it does for an error of a raylet, whatever `log_to_driver` says."""
    from ray._private import worker

    with ray_nodes(place, str):
        worker.print_worker_logs(
            {"pid": "raylet", "ip": "", "lines": ["Raylet is terminated"], "is_err": True}, sys.stderr
        )
    assert "Raylet is terminated" not in capfd.readouterr().err


def test_a_folder_that_nodes_do_not_see_is_brought_and_removed(place: UserPlace, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "model.py").write_text("x = 1\n")
    with ray_nodes(place, str) as nodes:
        nodes.share(str(root))
        assert nodes.shared == []  # they see it
    with ray_nodes(place, str) as nodes, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "is_there", _is_not_there)
        patch.setattr(module, "unpack", partial(_unpack_beside, str(tmp_path)))
        nodes.share(str(root))
        assert len(nodes.shared) == 2
    assert not root.exists()
    assert len(list(tmp_path.glob("far-*/model.py"))) == 2


def _is_not_there(folder: str) -> bool:
    return False


def _unpack_beside(top: str, folder: str, data: bytes) -> None:
    from perfaudit.cluster.node import unpack

    unpack(f"{top}/far-{os.getpid()}", data)


class Slow:
    """Four sets that tell where they ran, and wait at first for a file."""

    stage = "slow"

    def __init__(self, gate: Path) -> None:
        self.gate, self.seen = gate, list[int]()

    def is_open(self) -> bool:
        return len(self.seen) < 4

    def has_time(self) -> bool:
        return True

    def measure(self) -> None:
        raise AssertionError

    def work(self, ahead: int) -> Any:
        number = len(self.seen) + ahead
        return partial(_wait_for, str(self.gate), number) if number < 4 else None

    def take(self, found: int) -> None:
        self.seen.append(found)

    def recall(self, piece: Any, state: Any) -> None: ...

    def set_to_keep(self) -> None: ...


def _wait_for(gate: str, number: int) -> int:
    Path(f"{gate}-{number}").touch()
    while not Path(gate).exists():
        time.sleep(0.05)
    return number


def test_a_lost_node_costs_only_what_it_had(
    cluster: Any, place: UserPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    third, said, gate = cluster.add_node(num_cpus=1), list[str](), tmp_path / "gate"
    cluster.wait_for_nodes()
    with ray_nodes(place, said.append) as nodes:
        assert nodes.width == 3
        series, asked = Slow(gate), nodes.next

        def losing() -> tuple[int, Any | Lost]:
            if not gate.exists():
                while len(list(tmp_path.glob("gate-*"))) < 3:
                    time.sleep(0.05)
                cluster.remove_node(third, allow_graceful=False)
                found = asked()
                gate.touch()
                return found
            return asked()

        monkeypatch.setattr(RayNodes, "next", lambda self: losing())  # slots allow no other place
        run_on(nodes, [series])
        assert (series.seen, nodes.width) == ([0, 1, 2, 3], 2)
    assert "what was measured there at that moment is measured again on another node" in said[-1]


def test_traces_are_read_by_nodes_as_here(place: UserPlace, tmp_path: Path) -> None:
    for rank in range(5):
        host = Host(rank=rank, world_size=5)
        with host.step():
            step_of_training(host, layers=2)
            host.catch_up()
        host.write(tmp_path / f"rank{rank}.json")
    files = find_traces([tmp_path])
    with ray_nodes(place, str) as nodes:
        assert nodes.width == 2
        assert read_on(nodes, files, None, 1, lambda *told: None) == read_here(files, None, 1)


def test_a_full_cluster_is_said(cluster: Any, place: UserPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    with ray_nodes(place, str) as nodes:
        monkeypatch.setattr(module, "WAIT_SECONDS", 5.0)  # by now the nodes have answered, however busy the machine is
        for _ in range(nodes.width):
            nodes.send(partial(time.sleep, 0.01))
        with pytest.raises(
            NothingMeasured, match=r"no node of the Ray cluster is free: other work holds all \d \(waited 5 s\)"
        ):
            module._choose_nodes(ray, place, str, None, False)


def test_nodes_of_another_kind_are_left_out(place: UserPlace) -> None:
    from dataclasses import replace

    said: list[str] = []
    other = replace(kind_here(), cores=999)
    wanted = pytest.raises(NothingMeasured, match="no node of the Ray cluster is of the kind that is wanted")
    with wanted, ray_nodes(place, said.append, other):
        pass
    # A node that was lost may still be listed.
    assert sum("because it is of another kind: cores" in line for line in said) == 2


def test_a_cluster_that_cannot_be_joined_is_said_with_the_reason(
    place: UserPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        __version__ = "2.60.0"

        def init(self, **_: Any) -> None:
            raise ConnectionError("ray client connection timeout.\nmore")

    monkeypatch.setattr(module, "ensure_reachable", lambda: None)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    said = "the Ray cluster at 10.0.0.1:6379 (RAY_ADDRESS) cannot be joined: ray client connection timeout"
    for mode, remedy in (("", "; a cluster that asks for a token is joined with RAY_AUTH_MODE=token"), ("token", "")):
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
        with pytest.raises(NothingMeasured) as caught:
            module._connect(Gone(), str)
        assert str(caught.value) == said + remedy


def test_another_version_is_said() -> None:
    class Other:
        __version__ = "2.60.0"

        def init(self, **_: Any) -> None:
            raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.1")

    with pytest.raises(UserError, match=r"has another version of Ray or Python than this one \(Ray 2\.60\.0\)"):
        module._connect(Other(), str)


def test_a_cluster_that_asks_for_a_token_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.exceptions import AuthenticationError

    class Closed:
        __version__ = "2.60.0"

        def init(self, **_: Any) -> None:
            raise AuthenticationError("no token was found")

    monkeypatch.setattr(module, "ensure_reachable", lambda: None)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    said = r"the Ray cluster at 10\.0\.0\.1:6379 \(RAY_ADDRESS\) cannot be joined: no token was found"
    with pytest.raises(NothingMeasured, match=said):
        module._connect(Closed(), str)
