"""`perfaudit doctor` as it is typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from perfaudit.machine_facts import MachineFact

Run = Callable[..., Done]

FACTS = [
    MachineFact("processor", "usable cores", 4, basis="affinity, cgroup"),
    MachineFact("memory", "/dev/shm, free", 64 << 20, "bytes", "warning", "`docker run --ipc=host`", "statvfs"),
    MachineFact("devices", "copies from pinned memory", 2.5e10, "bytes/s"),
    MachineFact("torch", "version", None, state="unknown"),
]


@pytest.fixture(autouse=True)
def facts(monkeypatch: pytest.MonkeyPatch) -> list[MachineFact]:
    told = list(FACTS)
    monkeypatch.setattr("perfaudit.machine.checks.look_at", lambda place: told)
    return told


def test_a_warning_is_a_finding(perfaudit: Run) -> None:
    done = perfaudit("doctor")
    assert (done.code, done.err) == (1, "")
    assert "! /dev/shm, free  64 MiB\n      `docker run --ipc=host`\n" in done.out
    assert "  copies from pinned memory  25.00 GB/s" in done.out
    assert "? version  not known" in done.out
    assert done.out.endswith("1 thing here slows a training or spoils a measurement.\n")
    assert perfaudit("doctor", "--exit-zero").code == 0


def test_nothing_wrong(perfaudit: Run, facts: list[MachineFact]) -> None:
    facts.pop(1)
    done = perfaudit("doctor")
    assert done.code == 0
    assert "Nothing here would spoil a measurement" in done.out


def test_json(perfaudit: Run, tmp_path: Path) -> None:
    done = perfaudit("doctor", "--format", "json", "--output", str(tmp_path / "machine.json"))
    assert (done.code, done.out) == (1, "")
    report = json.loads((tmp_path / "machine.json").read_text())
    assert report["command"] == "doctor"
    assert report["doctor"][1] == {
        "area": "memory", "name": "/dev/shm, free", "value": 64 << 20, "unit": "bytes", "state": "warning",
        "advice": "`docker run --ipc=host`", "basis": "statvfs",
    }  # fmt: skip


def test_markdown(perfaudit: Run) -> None:
    done = perfaudit("doctor", "--format", "markdown")
    assert "| Memory | /dev/shm, free | 64 MiB | `docker run --ipc=host` |" in done.out


def test_other_commands_say_nothing_of_the_machine(perfaudit: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n")
    done = perfaudit("scan", str(tmp_path / "a.py"), "--format", "json")
    assert json.loads(done.out)["doctor"] is None
