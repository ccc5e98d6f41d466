"""Which loaded modules are the project's own: what patches may change, and what is scanned of a training."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from perfaudit.measure.gather_facts import _project_files


def test_libraries_that_pip_has_put_below_the_project_are_none_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in (("own", "pf_own"), ("vendored", "pf_vendored")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("")
    (tmp_path / "vendored" / "somelib-1.0.dist-info").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "own"), str(tmp_path / "vendored"), *sys.path])
    try:
        for name in ("pf_own", "pf_vendored"):
            importlib.import_module(name)
        assert _project_files() == ("own/pf_own.py",)
    finally:
        for name in ("pf_own", "pf_vendored"):
            sys.modules.pop(name, None)
