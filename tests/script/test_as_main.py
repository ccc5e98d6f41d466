"""A module that is not there is told from one whose own imports fail."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from perfaudit.script.as_main import is_missing_module


@pytest.mark.parametrize(
    ("name", "is_missing"),
    [("no_such_package_here.x", True), ("no_such_module_here", True), ("needs_more", False), ("needs_much.x", False)],
)
def test_a_module_that_is_not_there(
    name: str, is_missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_library_here")
    (tmp_path / "needs_much").mkdir()
    (tmp_path / "needs_much" / "__init__.py").write_text("import no_such_library_here")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError) as raised:
        runpy.run_module(name, run_name="__main__")
    assert is_missing_module(raised.value) == is_missing
