"""Which patches a script has to be started with: those of its loop, two of the same statements together, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfaudit.measure.holder import Holder
from perfaudit.measure.ledger import Variant
from perfaudit.measure.loop_patches import LoopPatches, Patched
from perfaudit.measure.watch import Watch
from perfaudit.measure.worker import answer
from perfaudit.target.names import Target
from perfaudit.tune.workshop import Children

TEXT = """
def forward(x):
    return x + 1

def main(o, data):
    for x in data:
        y = forward(x)
        o.zero_grad()
        o.step()
"""


def patch(old: str, new: str, text: str = TEXT) -> Patched:
    return {"train.py": [text, text.replace(old, new)]}


def never(i: int, j: int) -> None:
    raise AssertionError("these two change other statements")


def test_what_a_process_does_not_know_is_told() -> None:
    known = LoopPatches()
    assert known.add([patch("zero_grad()", "zero_grad(True)")], never)
    assert not known.add([patch("zero_grad()", "zero_grad(True)")], never)
    assert not known.add([patch("x + 1", "1 + x")], never)  # a function that ends before each step does: swapped
    assert not known.add([patch("x in data", "x in list(data)")], never)  # begun once, whatever a switch says
    assert known.add([patch("y = forward(x)", "y = forward(-x)")], never)


def test_patches_of_the_same_statement_are_known_together_too() -> None:
    known, asked = LoopPatches(), []

    def both(i: int, j: int) -> Patched:
        asked.append((i, j))
        return patch("y = forward(x)", "z = forward(-x)")

    assert known.add([patch("y =", "z ="), patch("zero_grad()", "zero_grad(True)"), patch("(x)\n", "(-x)\n")], both)
    assert asked == [(0, 2)]
    assert len(known.texts["train.py"][1]) == 4


def test_a_script_that_waits_without_a_patch_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TEXT)
    closed = []

    class Waiting:
        def close(self) -> None:
            closed.append(True)

        def at_end(self, work: Callable[[], None]) -> None:
            work()

    children = Children(Target("train.py", {}, ()), "cpu", Watch(), 1.0)
    for old, new, is_new in [("zero_grad()", "step()", True), ("zero_grad()", "step()", False), ("x + 1", "x", False)]:
        children._waiting = Waiting(), {}  # type: ignore[assignment]  # only its end is looked at
        children.expect([patch(old, new)], never)
        assert (children._waiting is None) is is_new
    assert closed == [True]
    command = children._build_command(Variant("as it is", "", {}), Waiting())  # type: ignore[arg-type]
    assert command["loops"]["train.py"][0] == TEXT
    children._waiting = None


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_script_that_a_question_has_ended_waits_for_nothing(
    has_ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TEXT)
    holder, told = Holder(), list[str]()
    holder.training = SimpleNamespace(has_ended=has_ended)

    class Waiting:
        def ask(self, command: dict[str, Any], timeout: float) -> dict[str, Any]:
            return {"fit": []} if command["do"] == "ask" else answer(holder, command)

        def pause(self) -> None:
            told.append("pause")

        def close(self) -> None:
            told.append("close")

    children = Children(Target("train.py", {}, ()), "cpu", Watch(), 1.0)
    children._waiting = Waiting(), {}  # type: ignore[assignment]  # only what it is told is looked at
    assert children.ask(Variant("as it is", "", {}), {"do": "ask"}) == [{}, {"fit": []}]
    assert told == ["close" if has_ended else "pause"]
    assert (children._waiting is None) is has_ended
    children._waiting = None
