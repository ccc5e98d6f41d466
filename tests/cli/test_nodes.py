"""`--on`: what is said before anything is measured."""

from __future__ import annotations

import importlib.util
import socket
import sys
from types import ModuleType, SimpleNamespace

import pytest

from perfaudit.cli.nodes import opener
from perfaudit.errors import NothingMeasured, UserError


@pytest.fixture
def has_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(name=name))
    for name in ("ray", "submitit"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


def test_a_name_of_no_scheduler_is_refused() -> None:
    with pytest.raises(UserError, match="--on lsf: it is one of ray, slurm"):
        opener("lsf")


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"perfaudit\[ray\]"):
        opener("ray")


@pytest.mark.usefixtures("has_packages")
def test_slurm_without_sbatch_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NothingMeasured, match="no sbatch"):
        opener("slurm")


@pytest.mark.usefixtures("has_packages")
def test_a_cluster_that_does_not_answer_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(NothingMeasured, match=f"at 127.0.0.1:{port} .RAY_ADDRESS. does not answer: connection refused"):
        opener("ray")


@pytest.mark.usefixtures("has_packages")
def test_a_cluster_that_listens_is_joined_when_nodes_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server.getsockname()[1]}")
        assert callable(opener("ray"))
