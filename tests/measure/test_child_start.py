"""A machine that does not let a process start is told in one line, and nothing of the attempt stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perfaudit.errors import NOTHING_MEASURED, NothingMeasured
from perfaudit.measure import child
from perfaudit.measure.child import Child


def fails(*_: object, **__: object) -> Any:
    raise OSError(24, "Too many open files")


@pytest.mark.parametrize("place", ["tempfile.TemporaryFile", "os.pipe", "subprocess.Popen"])
def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(child, "nursery", lambda: None)
    monkeypatch.setattr(f"perfaudit.measure.child.{place}", fails)
    before = os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else []  # noqa: PTH208
    with pytest.raises(NothingMeasured, match="no process to measure in can be started: too many open files") as raised:
        Child(fresh=True)
    assert raised.value.exit_code == NOTHING_MEASURED
    assert (os.listdir("/proc/self/fd") if before else []) == before  # noqa: PTH208
