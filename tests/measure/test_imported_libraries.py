"""Children begin with the libraries that the first one has imported, if these are the same modules in the same environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perfaudit.measure import imported_libraries, nursery
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.holder import Holder
from perfaudit.measure.imported_libraries import ImportsNoted, import_as_noted
from perfaudit.measure.ledger import Variant
from perfaudit.measure.verbs import building
from perfaudit.measure.watch import Watch
from perfaudit.script.redirected_writes import RedirectedWrites
from perfaudit.target.names import Target
from perfaudit.tune.workshop import workshop_for

FILES = {
    "big/__init__.py": "import os\nos.environ['SET_BY_BIG'] = 'yes'\nfrom big import part\nimport brought\n",
    "big/part.py": "import os\nSEEN = os.environ.get('OF_SCRIPT')\n",
    "big/late.py": "",
    "brought.py": "",
    "wandb.py": "",
}


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a large library; what is imported and set in the test is gone afterwards."""
    folder = tmp_path / "site-packages"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setattr(imported_libraries, "LARGE", {"big"})
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    finders, variables = list(sys.meta_path), dict(os.environ)
    yield folder
    _forget()
    sys.meta_path[:] = finders
    os.environ.clear()
    os.environ.update(variables)


def _forget() -> None:
    for name in ("big", "big.part", "big.late", "brought", "wandb"):
        sys.modules.pop(name, None)


def noted_by(script: str) -> dict[str, Any]:
    """What is noted of a script that runs in this process, which is afterwards as before."""
    variables, noted = dict(os.environ), ImportsNoted(os.environ)
    exec(compile(script, "script", "exec"), {"__name__": "script"})
    found = noted.end()
    _forget()
    os.environ.clear()
    os.environ.update(variables)
    return found


def test_what_is_noted(libraries: Path) -> None:
    noted = noted_by("import os, big\nos.environ['OF_SCRIPT'] = '1'\nimport big.late")
    assert noted["libraries"] == [["big", 0], ["big.part", 0], ["big.late", 1]]
    assert noted["environments"] == [{}, {"OF_SCRIPT": "1", "SET_BY_BIG": "yes"}]
    assert noted["modules"]["brought"] == str(libraries / "brought.py")
    assert not any(isinstance(finder, ImportsNoted) for finder in sys.meta_path)


def test_libraries_see_what_the_script_had_set(libraries: Path) -> None:
    noted, before = noted_by("import os\nos.environ['OF_SCRIPT'] = '1'\nimport big"), dict(os.environ)
    assert import_as_noted(noted) == ("", {"SET_BY_BIG": "yes"})
    assert sys.modules["big.part"].SEEN == "1"
    assert dict(os.environ) == before


def test_what_was_imported_in_another_environment_is_left_to_the_children(libraries: Path) -> None:
    noted = noted_by("import os, big\nos.environ['OF_SCRIPT'] = '1'\nimport big.late")
    assert import_as_noted(noted) == ("", {"SET_BY_BIG": "yes"})
    assert "big.part" in sys.modules
    assert "big.late" not in sys.modules


def test_a_script_has_a_module_of_a_name_that_a_library_imports(libraries: Path) -> None:
    noted = noted_by("import big")
    noted["modules"]["brought"] = "/home/me/project/brought.py"
    assert import_as_noted(noted)[0] == "brought is another module there"


def test_compiled_modules_of_one_name_take_each_others_place(libraries: Path) -> None:
    noted = noted_by("import big")
    noted["modules"]["brought"] = str(libraries / "other" / "brought.so")
    assert import_as_noted(noted)[0] == ""


def test_nothing_that_records_is_imported_beforehand(libraries: Path) -> None:
    (libraries / "brought.py").write_text("import wandb")
    assert import_as_noted(noted_by("import big"))[0] == "wandb was imported with it"


def test_no_more_is_imported_once_it_cannot_be_forked_from(libraries: Path) -> None:
    noted = noted_by("import big\nimport big.late")
    noted["modules"]["brought"] = "/home/me/project/brought.py"
    import_as_noted(noted)
    assert "big.late" not in sys.modules
    _forget()
    noted["modules"]["brought"] = str(libraries / "brought.py")
    assert (
        import_as_noted(noted, lambda: "a thread runs in it" if "big" in sys.modules else "")[0]
        == "a thread runs in it"
    )
    assert "big.late" not in sys.modules


def test_modules_of_the_project_are_not_noted(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert noted_by("import big")["libraries"] == []


TRAIN = """
import sys
if "torch.utils.benchmark" in sys.modules:
    raise RuntimeError("it is there")
import torch.utils.benchmark

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""


def test_the_next_child_begins_with_what_the_first_has_imported(project: Callable[..., Path]) -> None:
    project(**{"train.py": TRAIN})
    plain, target = Variant("survey", "", {}), Target("train.py", {}, ())
    with workshop_for(None, target, "cpu", Watch(), 60.0) as children:
        children.ask(plain, {"do": "block", "steps": 1})
        before = nursery.nursery()
        assert children.preload_libraries() > 0
        children.ask(plain, {"do": "block", "steps": 1})  # of the first one, which goes on
        children.close()
        with pytest.raises(ChildFailed, match="it is there"):
            children.ask(plain)
    with workshop_for(None, target, "cpu", Watch(), 60.0) as children:
        children.ask(plain)
        assert nursery.nursery() is not before


class Told(Watch):
    """Keeps notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_libraries_that_cannot_be_imported_beforehand_are_tried_once_and_told(
    project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def preload_as(self: nursery.Nursery, noted: dict[str, Any]) -> str:
        tried.append(len(noted["libraries"]))
        self.is_spoilt = True
        return "brought is another module there"

    monkeypatch.setattr(nursery.Nursery, "preload_as", preload_as)
    project(**{"train.py": TRAIN})
    told, plain = Told(), Variant("survey", "", {})
    with workshop_for(None, Target("train.py", {}, ()), "cpu", told, 60.0) as children:
        children.ask(plain, {"do": "block", "steps": 1})
        assert (children.preload_libraries(), children.preload_libraries()) == (0.0, 0.0)
    assert len(tried) == 1
    assert told.notes == ["each process imports the libraries by itself: beforehand, brought is another module there"]


class Answering(nursery.Nursery):
    """A nursery that answers so; where that is an exception, its socket raises it."""

    def __init__(self, *answers: bytes | OSError) -> None:
        self._answers, self.is_closed = list(answers), False
        self._socket = self  # type: ignore[assignment]  # what is used of a socket stands below

    def sendmsg(self, *_: object) -> None: ...

    def sendall(self, *_: object) -> None: ...

    def recv(self, size: int) -> bytes:
        answer = self._answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("answers", "why", "is_closed"),
    [
        ([b"-"], "", False),
        ([TimeoutError(), TimeoutError(), b"-"], "", False),  # on a busy machine
        ([b"brought is another module there"], "brought is another module there", False),  # its children live on
        ([b""], "the process that starts the children has ended", False),
        ([TimeoutError()] * nursery.PATIENCE, "the process that starts the children does not answer", True),
    ],
)
def test_what_comes_of_importing_libraries_beforehand(
    answers: list[bytes | OSError], why: str, is_closed: bool
) -> None:
    parent = Answering(*answers)
    assert parent.preload_as({"libraries": []}) == why
    assert (parent.is_spoilt, parent.is_closed) == (bool(why), is_closed)


def test_an_answer_that_comes_late_is_not_taken_for_another_one() -> None:
    parent = Answering(TimeoutError(), b"-", TimeoutError(), b"4711", TimeoutError(), b"-", b"1")
    parent.wait()
    assert parent.fork(0, 1, 2) == 4711
    assert (parent.poll(4711), parent.poll(4711)) == (None, 1)


@pytest.mark.parametrize("mounts", [True, False])
def test_nothing_is_noted_where_functions_of_python_are_replaced(
    mounts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that is there before would hold those that write the user's own files."""
    kept = object() if mounts else RedirectedWrites(tmp_path)
    monkeypatch.setattr(building, "keep_files_away", lambda *_, **__: kept)
    monkeypatch.setattr("perfaudit.training.script_training.ScriptTraining", lambda *_: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    holder = Holder()
    building.run_script(holder, Target("train.py", {}, ()), str(tmp_path), "", {}, 0, {}, {})
    assert bool(building.libraries_so_far(holder)) is mounts
