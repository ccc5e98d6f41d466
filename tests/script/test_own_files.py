"""The files of the script's project among those that a process has imported."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from perfaudit.script.own_files import OwnFiles


def test_files_are_looked_at_once_and_new_ones_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def imported(name: str) -> str:
        path = tmp_path / f"{name}.py"
        path.touch()
        module = types.ModuleType(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)
        return str(path)

    files = OwnFiles()
    first = imported("perfaudit_first")
    assert first in files.names()
    assert pytest.__file__ not in files.names()
    second = imported("perfaudit_second")
    assert {first, second} <= set(files.names())
    Path(first).unlink()
    assert first not in files.names()
