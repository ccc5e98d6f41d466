"""Which classes of models a script has imported and not built."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from surveys import found

from perfaudit.cli.run import _lines_of_classes, _lines_under_guards
from perfaudit.findings import Location
from perfaudit.runs import Run
from perfaudit.script.advice import NEVER_RUN, order_findings
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


def test_a_script_that_never_imported_torch_has_no_classes_and_torch_is_not_imported_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch.nn")
    assert BuiltModules().never_built({str(tmp_path / "models.py")}) == {}
    assert "torch.nn" not in sys.modules


def test_what_runs_only_where_its_file_is_the_script(tmp_path: Path) -> None:
    helper = tmp_path / "helper.py"
    helper.write_text('import torch\n\nif __name__ == "__main__":\n    a = 1\n    b = 2\nelse:\n    c = 3\n')
    given = [found("PA402").with_(location=Location(str(helper), 4, 5, 4, 9))]
    assert _lines_under_guards(given, str(tmp_path / "train.py")) == [(str(helper.resolve()), 3, 5)]
    assert _lines_under_guards(given, str(helper)) == _lines_under_guards(given, "") == []
    run = Run("train.py", "enough", counted=9, phases={"optimizer": 0.5, "data_wait": 0.0}, device="cpu")
    assert order_findings(given, run, never_run=[(str(helper), 3, 5)])[0].note == NEVER_RUN
