"""Nodes of Ray that are lost while a folder goes to them. Ray is a stand-in here; `test_ray_nodes` has the real one."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from perfaudit.cluster import ray_nodes as module
from perfaudit.cluster.kind import kind_here
from perfaudit.cluster.node import answer
from perfaudit.cluster.ray_nodes import RayNodes, _Node
from perfaudit.errors import NothingMeasured


class RayError(Exception): ...


class RayTaskError(RayError): ...


class GetTimeoutError(RayError, TimeoutError): ...


class Ray:
    """As far as it is asked; an answer that is an error is raised where it is fetched."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, GetTimeoutError=GetTimeoutError)

    def __init__(self) -> None:
        self.killed: list[Any] = []
        self.timeouts: list[float] = []
        self.now = [0.0]

    def get(self, reference: Any, timeout: float) -> Any:
        """What lies behind a reference. With no time left, what has come is given all the same, as by Ray itself."""
        assert 0 <= timeout <= module.SHARE_SECONDS
        self.timeouts.append(timeout)
        if isinstance(reference, Late):
            self.now[0] += min(timeout, reference.seconds)
            if reference.seconds > timeout:
                raise GetTimeoutError("not ready")
            return reference.answer
        if isinstance(reference, Exception):
            raise reference
        return reference

    def put(self, data: bytes) -> bytes:
        return data

    def kill(self, process: Any) -> None:
        self.killed.append(process)


class Late:
    """An answer that comes so many seconds after it is fetched."""

    def __init__(self, seconds: float, answer: Any) -> None:
        self.seconds, self.answer = seconds, answer


class Process:
    """Of a node that does not see a folder, and has an error the n-th time it is asked."""

    def __init__(self, error: Exception | None, time: int) -> None:
        self.error, self.time = error, time
        self.do_with = SimpleNamespace(remote=self.ask)

    def ask(self, what: Any, *arguments: Any) -> Any:
        self.time -= 1
        return self.error if self.error is not None and self.time == 0 else answer(lambda: what(*arguments))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(module, "is_there", lambda folder: False)
    monkeypatch.setattr(module, "unpack", lambda folder, data: None)
    return str(tmp_path)


def nodes_of(said: list[str], *errors: tuple[Exception | None, int]) -> RayNodes:
    nodes = [_Node(f"{number}", f"node {number}", Process(*error)) for number, error in enumerate(errors)]
    return RayNodes(Ray(), nodes, kind_here(), False, said.append)


@pytest.mark.parametrize("time", [1, 2])  # asked whether it sees the folder, and given it
@pytest.mark.parametrize(
    ("error", "how"),
    [
        (RayError("The node has died.\nmore"), "was lost (The node has died)"),
        (
            RayError(
                "The actor is unavailable: RpcError: RPC Error message: failed to connect; RPC Error details: rpc_code: 14"
            ),
            "was lost (The actor is unavailable)",
        ),
        (RayError("RpcError: rpc_code: 14"), "was lost (RayError)"),
        (GetTimeoutError("not ready"), "has not answered in 300 s"),
    ],
)
def test_a_node_that_is_lost_meanwhile_is_left_out(folder: str, error: Exception, how: str, time: int) -> None:
    said: list[str] = []
    nodes = nodes_of(said, (None, 0), (error, time))
    lost = nodes.nodes[1].process
    nodes.share(folder)
    assert ([node.name for node in nodes.nodes], nodes.ray.killed) == (["node 0"], [lost])
    assert said == [f"node 1 {how}; it is left out"]


def test_a_node_that_takes_all_the_time_leaves_the_others_what_has_come(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    nodes = nodes_of(said, (None, 0), (None, 0), (None, 0))
    monkeypatch.setattr(module.time, "monotonic", lambda: nodes.ray.now[0])
    for node, seconds in zip(nodes.nodes, (2 * module.SHARE_SECONDS, 0.0, 1.0), strict=True):
        node.process.do_with.remote = lambda *asked, late=seconds: Late(late, answer(lambda: True))
    assert [node.name for node, _ in nodes._ask([*nodes.nodes], str)] == ["node 1"]
    assert nodes.ray.timeouts == [module.SHARE_SECONDS, 0.0, 0.0]
    assert said == [f"node {number} has not answered in 300 s; it is left out" for number in (0, 2)]


def test_where_none_is_left_that_is_said(folder: str) -> None:
    with pytest.raises(NothingMeasured, match=r"no node is left: node 0 was lost \(gone\)"):
        nodes_of([], (RayError("gone"), 2)).share(folder)


def test_a_fault_of_ours_is_no_lost_node(folder: str) -> None:
    nodes = nodes_of([], (RayTaskError("TypeError"), 1))
    with pytest.raises(RayTaskError):
        nodes.share(folder)
    assert nodes.width == 1


class Joined:
    """Ray, as far as a cluster is joined or started."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    def init(self, address: str, **_: object) -> None:
        self.addresses.append(address)


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """What Ray would join without RAY_ADDRESS: its address; None where it knows none."""
    found: dict[str, str | None] = {}

    def address_of(addr: str, temp_dir: str | None) -> str:
        if (address := found["address"]) is None:
            raise ConnectionError("Could not find any running Ray instance.")
        return address

    exceptions, services = ModuleType("ray.exceptions"), ModuleType("ray._private.services")
    vars(exceptions)["RayError"] = RayError
    vars(services)["get_ray_address_from_environment"] = address_of
    for name, made in (("ray", ModuleType("ray")), ("ray._private", ModuleType("ray._private"))):
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
    monkeypatch.setitem(sys.modules, "ray._private.services", services)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return found


def test_a_cluster_that_ray_remembers_and_that_is_gone_gives_way_to_one_here(
    remembered: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for remembered["address"] in (address, None, "local"):
            ray, said = Joined(), list[str]()
            assert not module._connect(ray, said.append)
            assert (ray.addresses, said) == (["auto"], [])
    remembered["address"] = address  # nothing listens there now
    ray = Joined()
    assert module._connect(ray, said.append)
    assert ray.addresses == ["local"]
    assert said == [
        f"the Ray cluster at {address}, which Ray remembers on this machine, does not answer: another is started here alone"
    ]
    monkeypatch.setenv("RAY_ADDRESS", address)  # what the user names is no matter of what is remembered
    with pytest.raises(NothingMeasured, match=r"\(RAY_ADDRESS\) does not answer"):
        module._connect(ray, said.append)
