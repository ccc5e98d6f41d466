"""What the files around one say: who imports whom, what a program carries, what holds of some file."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

from perfaudit.static.call_index import CallShape
from perfaudit.static.project import Project
from perfaudit.static.source import Source

Folder = Callable[..., Path]


def test_who_imports_whom(project: Folder) -> None:
    folder = project(
        **{
            "data.py": "import torch",
            "engine.py": "from data import loader",
            "train.py": "import engine\nmodel.cuda()",
            "alone.py": "model.cuda()",
        }
    )
    seen = Project(sorted(folder.glob("*.py")))
    assert seen.seen_from(folder / "data.py").is_imported_by_a_marked_file("accelerator")
    assert not seen.seen_from(folder / "alone.py").is_imported_by_a_marked_file("accelerator")
    asked = seen.seen_from(folder / "data.py")
    asked.is_imported_by_a_marked_file("accelerator")
    assert asked.asked.imports


def test_a_package_that_hands_on_what_says_torch_is_asked(project: Folder) -> None:
    folder = project(
        **{
            "net/__init__.py": "from .tracker import Tracker",
            "net/tracker.py": "import torch",
            "plain/__init__.py": "from .words import Word\nfrom plain import Word",
            "plain/words.py": "import re",
            "train.py": "from net import Tracker",
        }
    )
    seen = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "train.py")
    assert seen.imports_a_marked_file("torch", ["net", "net.Tracker"])
    assert str(folder / "net" / "tracker.py") in seen.asked.files
    assert not seen.imports_a_marked_file("torch", ["plain", "plain.Word"])


def test_a_program_is_who_imports_and_what_they_import(project: Folder) -> None:
    folder = project(
        **{
            "data.py": "import torch",
            "train.py": "import data, engine",
            "engine.py": "batch.cuda()",
            "alone.py": "import json",
        }
    )
    seen = Project(sorted(folder.glob("*.py")))
    assert seen.seen_from(folder / "data.py").program_carries("accelerator")
    assert seen.seen_from(folder / "train.py").program_carries("accelerator")
    assert not seen.seen_from(folder / "engine.py").program_carries("accelerator")  # what others do; it is that file
    assert not seen.seen_from(folder / "alone.py").program_carries("accelerator")


def test_calls_by_importers(project: Folder) -> None:
    folder = project(
        **{
            "data.py": "def make(n=0): ...",
            "train.py": "import data\ndata.make(4)",
            "other.py": "make(1, 2)",
            "broken.py": "import data\nmake(",
        }
    )
    project_of_scan = Project(sorted(folder.glob("*.py")))
    neighbours = project_of_scan.seen_from(folder / "data.py")
    assert neighbours.calls_by_importers("make") == [CallShape(1)]
    assert neighbours.asked.importers
    before = project_of_scan.digest_of_importers(str(folder / "data.py"))
    (folder / "broken.py").write_text("import data\ndata.make(n=4)")
    changed = Project(sorted(folder.glob("*.py")))
    assert changed.digest_of_importers(str(folder / "data.py")) != before
    shapes = changed.seen_from(folder / "data.py").calls_by_importers("make")
    assert shapes == [CallShape(0, frozenset({"n"})), CallShape(1)]


def test_whether_an_importer_calls_a_name(project: Folder) -> None:
    """What is asked depends on the importers, whether one calls the name or not; what only says the name calls nothing."""
    folder = project(
        **{
            "data.py": "def make(): ...\n\ndef keep(): ...",
            "train.py": "import data\ndata.make()",
            "talks.py": "import data  # keep",
            "other.py": "keep()",
        }
    )
    project_of_scan = Project(sorted(folder.glob("*.py")))
    for name, is_called in (("make", True), ("keep", False)):
        neighbours = project_of_scan.seen_from(folder / "data.py")
        assert neighbours.is_called_by_importers(name) is is_called
        assert neighbours.asked.importers


def test_some_file(project: Folder) -> None:
    folder = project(**{"a.py": "m.bias", "b.py": "m.bias.zero_()", "c.py": "zero_()", "d.py": "m.bias ("})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "a.py")

    def zeroes(source: Source) -> bool:
        return bool(source.calls(".zero_"))

    assert Path(neighbours.some_file("bias", zeroes)).name == "b.py"
    assert neighbours.asked.marks == {"bias"}
    assert Project([folder / "b.py"]).seen_from(folder / "b.py").some_file("bias", zeroes) == ""  # not of itself


def test_questions_share_what_they_need(project: Folder) -> None:
    """A file of which the shared fact does not hold is read once, whatever is asked besides."""
    folder = project(**{"a.py": "m.bias", "b.py": "m.bias", "c.py": "zero_(m.bias)", "d.py": "zero_(m.bias, 1)"})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "a.py")
    read: list[str] = []

    def calls_something(source: Source) -> bool:
        read.append(Path(source.path).name)
        return bool(source.nodes(ast.Call))

    def passes_two(source: Source) -> bool:
        return any(len(call.args) == 2 for call in source.nodes(ast.Call))

    def passes_three(source: Source) -> bool:
        return any(len(call.args) == 3 for call in source.nodes(ast.Call))

    assert Path(neighbours.some_file("bias", passes_two, calls_something)).name == "d.py"
    assert neighbours.some_file("bias", passes_three, calls_something) == ""
    assert neighbours.some_relative("bias", passes_three, calls_something) == ""
    assert read == ["b.py", "c.py", "d.py"]
