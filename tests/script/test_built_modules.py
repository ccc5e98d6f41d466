"""Which classes of models a script has imported and not built."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from surveys import found

from perfaudit.cli.run import _lines_of_classes
from perfaudit.findings import Location
from perfaudit.script.built_modules import BuiltModules

MODELS = """
from torch import nn
from torch.nn import Linear

class Base(nn.Module): pass

class Small(Base):
    pass

class Large(Base):
    large = 1

class Elsewhere(nn.Module): pass
"""


def imported(name: str, file: Path) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(file)
    exec(compile(MODELS, str(file), "exec"), vars(module))
    return module


def test_classes_of_which_no_module_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is imported under two names, as where the script is a module that another one imports."""
    file = tmp_path / "models.py"
    file.write_text(MODELS)
    first, second = imported("models_of_test", file), imported("models_again", file)
    monkeypatch.setitem(sys.modules, "models_of_test", first)
    monkeypatch.setitem(sys.modules, "models_again", second)
    modules = BuiltModules()
    modules.is_open = False
    build = modules.watch_building(lambda module: None)
    build(first.Small())
    build(second.Elsewhere())
    names = modules.never_built({str(file)})
    assert names == {str(file): ["Large"]}
    assert modules.alive() == []
    given = [found("PA203").with_(location=Location(str(file), 11, 5, 11, 9))]
    assert _lines_of_classes(given, names) == [(str(file.resolve()), 10, 11)]
