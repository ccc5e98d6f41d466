"""What is refused of a patch while a loop runs, found from inside a step of it."""

from __future__ import annotations

import builtins
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from perfaudit.training import switches
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.edited_places import edited_places
from perfaudit.training.multiplexed_file import SWITCHES, multiplex

TEXT = """
import os

def update(o):
    o.zero_grad()
    o.step()

def evaluate(o):
    show(0)
    o.backward()

def main(o):
    a = 1
    for epoch in range(2):
        b = 2
        for batch in range(2):
            c = 3
            update(o)
        d = 4
    e = 5

main(o)
"""
HEADS = "ran before the steps began"
CHANGES = {
    "a statement of the inner loop": ("c = 3", "c = 4", ""),
    "behind the inner loop": ("d = 4", "d = 5", ""),
    "behind all loops": ("e = 5", "e = 6", ""),
    "a function that is called in each step": ("zero_grad()", "zero_grad(True)", ""),
    "a function that is not running": ("show(0)", "show(1)", ""),
    "before the loops": ("a = 1", "a = 2", f"line 13 of train.py.* {HEADS}"),
    "before the inner loop": ("b = 2", "b = 3", f"line 15 of train.py.* {HEADS}"),
    "an import that fails": ("import os\n", "import os\nimport no_such_module_here\n", "an import of the patch failed"),
}


def refusal(old: str, new: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Why a patch is not put in place from inside the first step, "" where it is."""
    monkeypatch.chdir(folder)
    path = str(folder / "train.py")
    after = TEXT.replace(old, new) if old != "import os\n" else TEXT.replace(old, new).replace("c = 3", "c = 4")
    file = multiplex(path, TEXT, [after])
    monkeypatch.setattr(switches, "_files", {path: file})
    monkeypatch.setattr(builtins, SWITCHES, [0] * len(file.regions), raising=False)
    found: list[str] = []

    def step() -> None:
        try:
            switches.switch_variant(file, edited_places(TEXT, after))
        except NotSwappable as why:
            found.append(str(why))
        else:
            found.append("")

    o = SimpleNamespace(step=step, zero_grad=lambda *a: None, backward=lambda: None)
    module = ModuleType("train")
    vars(module).update(o=o, show=print, __file__=path)
    monkeypatch.setitem(sys.modules, "train", module)
    exec(file.code(), vars(module))
    return found[0]


@pytest.mark.parametrize(("old", "new", "why"), CHANGES.values(), ids=CHANGES)
def test_what_has_run_is_not_switched(
    old: str, new: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever another test of this process has compiled does not count.
    nothing = SimpleNamespace(counters={"stats": {"unique_graphs": 0}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", nothing)
    said = refusal(old, new, tmp_path, monkeypatch)
    assert re.search(why, said) if why else said == ""


@pytest.mark.parametrize(("old", "is_refused"), [("c = 3", False), ("zero_grad()", False), ("show(0)", True)])
def test_what_torch_may_have_compiled_is_not_switched(
    old: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = SimpleNamespace(counters={"stats": {"unique_graphs": 1}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", compiled)
    new = {"c = 3": "c = 4", "zero_grad()": "zero_grad(True)", "show(0)": "show(1)"}[old]
    assert ("torch.compile has compiled" in refusal(old, new, tmp_path, monkeypatch)) is is_refused
