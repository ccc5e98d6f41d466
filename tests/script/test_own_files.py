"""The files of the script's project among those that a process has imported."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from perfaudit.script.own_files import OwnFiles, is_own


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


def test_a_folder_that_pip_has_filled_is_not_the_script_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries, project, script = (tmp_path / name for name in ("libraries", "project", "script"))
    for folder in (libraries, project, script):
        folder.mkdir()
    for folder in (libraries, script):  # as `pip install --target` leaves it, into the script's own folder too
        (folder / "somelib-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(script), str(libraries), str(project), str(tmp_path / "nowhere")])
    assert is_own(str(script / "train.py"))
    assert is_own(str(project / "model.py"))
    assert not is_own(str(libraries / "somelib" / "trainer.py"))
    monkeypatch.chdir(libraries)
    monkeypatch.setattr(sys, "path", [str(script), str(libraries)])
    assert is_own(str(libraries / "model.py"))
