"""Which targets a reference has, from the text of its files alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.config import find_config
from perfaudit.gate import targets_there
from perfaudit.gate.gitref import Reference
from perfaudit.gate.request import Request
from perfaudit.gate.settings import GateSettings
from perfaudit.gate.targets_there import former_files, gone_targets, is_new
from perfaudit.target.names import Target

BOTH = "def build_model(): ...\ndef build_dataloader(): ...\n"
BIG = BOTH + "def build_big(): ...\nclass Nets:\n    def big(self): ...\n"
LOADER = "def build_dataloader(): ...\n"


def reference(folder: Path, missing: tuple[str, ...] = ()) -> Reference:
    return Reference(folder, Path.cwd(), Path.cwd(), "main", "0" * 40, missing=missing)


@pytest.mark.parametrize(
    ("before", "names", "new"),
    [
        (BOTH, {}, False),
        (None, {}, True),
        ("", {}, True),
        (LOADER, {}, True),  # a model that was defined elsewhere
        (BOTH + "def f(:", {}, False),  # broken there, which is no new target
        ("import *", {"model": "build_big"}, False),
        (BIG, {"model": "build_big"}, False),
        (BOTH, {"model": "build_big"}, True),
        (LOADER + "from nets import *", {"model": "build_big"}, False),
        (BIG, {"model": "Nets.big"}, False),
        (BOTH, {"model": "Nets.big"}, True),
        (BOTH, {"model": "train.py:build_model"}, False),
        (BOTH, {"model": "new.py:build_model"}, True),
        (BOTH, {"optimizer": "build_adam"}, True),
        (BOTH, {"model": "/elsewhere/nets.py:build"}, False),
        (None, {"model": "/elsewhere/nets.py:build"}, True),
        (BOTH, {"model": "../nets.py:build"}, False),  # outside of what is compared
    ],
)
def test_what_is_new(project: Callable[..., Path], before: str | None, names: dict[str, str], new: bool) -> None:
    folder = project(**{"train.py": BIG, "new.py": BOTH})
    (folder / "before").mkdir()
    if before is not None:
        (folder / "before" / "train.py").write_text(before)
    assert is_new(Target("train.py", names), reference(folder / "before")) == new


def test_a_script_is_new_where_its_file_is(project: Callable[..., Path]) -> None:
    folder = project(**{"train.py": "", "before/train.py": "def f(:", "before/old.py": ""})
    assert not is_new(Target("train.py", {}, ("-n", "1")), reference(folder / "before"))
    assert is_new(Target("new.py", {}, ()), reference(folder / "before"))


def test_a_name_that_the_reference_alone_has(project: Callable[..., Path]) -> None:
    two = '[tool.perfaudit.targets]\nsmall = "train.py -n 1"\nlarge = "train.py -n 9"\n'
    now = {"train.py": "", "pyproject.toml": '[tool.perfaudit.targets]\nsmall = "train.py -n 2"\n'}
    folder = project(**{"before/pyproject.toml": two, "before/train.py": ""}, **now)
    small = Target("train.py", {}, ("-n", "2"), name="small")
    request = Request((small,), GateSettings(), find_config(folder))
    assert gone_targets(request, reference(folder / "before")) == ["large"]


def test_what_may_be_there_is_not_new(project: Callable[..., Path]) -> None:
    folder = project(**{"lib/train.py": BOTH, "data/train.py": BOTH, "before/a.py": ""})
    there = folder / "before"
    (there / "data").symlink_to("/nonexistent")
    (there / "data.py").symlink_to("/nonexistent.py")
    assert is_new(Target("lib/train.py"), reference(there))
    # This is a submodule that could not be filled.
    assert not is_new(Target("lib/train.py"), reference(there, missing=("lib",)))
    assert not is_new(Target("data.py"), reference(there))


GATE = "[tool.perfaudit.gate]\ntargets = {}\n"
EVAL = '[tool.perfaudit.target]\nfile = "sub/eval.py"\n'
ONE, TWO = GATE.format('["train.py"]'), GATE.format('["train.py", "sub/eval.py:build_model"]')


@pytest.mark.parametrize(
    ("before", "now", "gone"),
    [
        ({"train.py": BOTH}, {"train.py": BOTH}, []),
        ({"train.py": BOTH, "part.py": LOADER}, {"train.py": BOTH}, []),
        ({"train.py": BOTH, "old.py": BOTH}, {"train.py": BOTH}, ["old.py"]),  # renamed, say
        ({"train.py": BOTH, "old.py": BOTH}, {"train.py": BOTH, "old.py": ""}, ["old.py"]),
        ({"train.py": BOTH, "old.py": BOTH}, {"train.py": BOTH, "old.py": BOTH}, []),  # another command may name it
        ({"train.py": BOTH, "old.py": BOTH, "pyproject.toml": ONE}, {"train.py": BOTH}, []),  # it was no target there
        ({"train.py": BOTH, "sub/eval.py": BOTH, "pyproject.toml": TWO}, {"train.py": BOTH, "pyproject.toml": ONE},
         ["sub/eval.py"]),
        ({"train.py": BOTH, "sub/eval.py": BOTH, "pyproject.toml": TWO},
         {"train.py": BOTH, "sub/eval.py": BOTH, "pyproject.toml": ONE}, ["sub/eval.py"]),  # taken out of the gate
        ({"train.py": BOTH, "sub/eval.py": BOTH, "pyproject.toml": TWO},
         {"train.py": BOTH, "sub/eval.py": BOTH, "pyproject.toml": TWO}, []),  # the command line names one of two
        ({"train.py": BOTH, "pyproject.toml": "[tool.perfaudit"}, {"train.py": BOTH}, []),
        # configured on one side only: another command may name it
        ({"train.py": BOTH, "old.py": BOTH}, {"train.py": BOTH, "old.py": BOTH, "pyproject.toml": ONE}, []),
        ({"train.py": BOTH, "sub/eval.py": BOTH, "pyproject.toml": TWO}, {"train.py": BOTH, "sub/eval.py": BOTH}, []),
        ({"train.py": BOTH, "sub/eval.py": BOTH, "pyproject.toml": EVAL}, {"train.py": BOTH, "pyproject.toml": ONE},
         ["sub/eval.py"]),
        ({"train.py": BOTH, "pyproject.toml": GATE.format('["/no/such.py", 3, "a:b:c:"]')}, {"train.py": BOTH}, []),
        ({"train.py": BOTH, "pyproject.toml": GATE.format('"train.py"')}, {"train.py": BOTH}, []),
    ],
)  # fmt: skip
def test_what_is_no_target_any_more(
    project: Callable[..., Path], before: dict[str, str], now: dict[str, str], gone: list[str]
) -> None:
    folder = project(**{f"before/{name}": text for name, text in before.items()}, **now)
    request = Request((Target("train.py"),), GateSettings(), find_config(folder))
    assert gone_targets(request, reference(folder / "before")) == gone
    assert Path.cwd().samefile(folder)


def test_a_target_that_was_renamed_is_told_by_its_former_name(
    project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(**{"new.py": BOTH, "train.py": BOTH, "sub/part.py": BOTH, "before/train.py": BOTH})
    there = folder / "before"
    (there / "old.py").write_text(BOTH)
    (folder / "outside.py").write_text(BOTH)
    names: dict[str, tuple[str, int]] = {}
    asked: list[Reference] = []

    def renamed(reference: Reference) -> dict[str, tuple[str, int]]:
        asked.append(reference)
        return names

    monkeypatch.setattr(targets_there, "renamed_files", renamed)
    before = reference(there)
    assert former_files([Target("train.py")], before) == {}
    assert not asked  # nothing is new, so nobody asks git
    new = [Target("train.py"), Target("new.py"), Target("sub/part.py")]
    assert former_files(new, before) == {}
    names |= {"new.py": ("old.py", 90), "sub/part.py": ("old.py", 70), "train.py": ("old.py", 60)}
    assert former_files(new, before) == {"new.py": ("old.py", 90), "sub/part.py": ("old.py", 70)}
    for other in ("../outside.py", "gone.py"):  # which is not compared, or is not there
        names["new.py"] = other, 90
        assert former_files(new[:2], before) == {}
    assert asked == [before] * len(asked)


def test_without_the_folder_in_the_reference_no_target_is_gone(project: Callable[..., Path]) -> None:
    folder = project(**{"train.py": BOTH})
    request = Request((Target("train.py"),), GateSettings(), find_config(folder))
    assert gone_targets(request, reference(folder / "none")) == []
