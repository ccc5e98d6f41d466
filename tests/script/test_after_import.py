"""Something is done once a module has been imported, whoever asks for it before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from perfaudit.script.after_import import after_import

NAME = "module_of_a_test"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / f"{NAME}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    importlib.invalidate_caches()
    return NAME


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_whoever_asks_whether_a_module_is_there_keeps_nobody_from_being_told(module: str, asked: int) -> None:
    """As `datasets` and `transformers` ask for torch before they import it."""
    told: list[str] = []
    finders = list(sys.meta_path)
    for who in ("first", "second"):
        after_import(module, lambda who=who: told.append(who))  # type: ignore[misc]  # of the loop
    for _ in range(asked):
        assert importlib.util.find_spec(module) is not None
    assert told == []
    imported = importlib.import_module(module)
    assert (sorted(told), imported.value) == (["first", "second"], 1)
    assert sys.meta_path == finders
    importlib.reload(imported)
    assert len(told) == 2


def test_a_module_that_cannot_be_imported_is_told_when_it_can(module: str, tmp_path: Path) -> None:
    told: list[str] = []
    after_import(module, lambda: told.append("there"))
    file = tmp_path / f"{module}.py"
    file.write_text("raise ImportError\n")
    with pytest.raises(ImportError):
        importlib.import_module(module)
    file.write_text("value = 22\n")
    importlib.invalidate_caches()
    assert importlib.import_module(module).value == 22
    assert told == ["there"]


def test_a_module_that_is_there_is_told_at_once_and_one_that_is_not_never() -> None:
    told: list[str] = []
    after_import("sys", lambda: told.append("sys"))
    after_import("no_such_module_at_all", lambda: told.append("none"))
    try:
        assert importlib.util.find_spec("no_such_module_at_all") is None
    finally:
        sys.meta_path.pop(0)
    assert told == ["sys"]
