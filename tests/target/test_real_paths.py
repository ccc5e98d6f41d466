"""Where files lie: of modules that are known without asking the system, of all others as it says now."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from perfaudit.target import real_paths
from perfaudit.target.real_paths import know_modules, real_path


def test_modules_are_looked_up_once_and_other_files_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_paths, "_known", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "here")
    for name, file in (("known", str(tmp_path / "linked" / "known.py")), ("relative", "relative.py"), ("none", None)):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        vars(sys.modules[name])["__file__"] = file
    know_modules()
    (tmp_path / "linked").unlink()
    (tmp_path / "linked").symlink_to(tmp_path / "there")
    (tmp_path / "below").mkdir()
    os.chdir(tmp_path / "below")
    found = [real_path(str(tmp_path / "linked" / name)) for name in ("known.py", "other.py")]
    assert found == [str(tmp_path / "here" / "known.py"), str(tmp_path / "there" / "other.py")]
    assert real_path("relative.py") == str(tmp_path / "below" / "relative.py")
