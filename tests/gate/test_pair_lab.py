"""What both sides of a pair are told: the same, but for where the code is; and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from surveys import facts

from perfaudit.errors import NoBatches, TargetError
from perfaudit.gate import pair_lab
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.pair_lab import PairLab, SideSubject
from perfaudit.gate.records import Side
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.facts import to_json
from perfaudit.measure.holder import Holder
from perfaudit.measure.runner import TrialEnded, TrialFailed
from perfaudit.measure.worker import answer
from perfaudit.target.names import Target

EACH = {"seconds": [0.1], "samples": [8], "with_restarts": False}
BLOCK = {"steps": 1, "samples": 8, "restart_per_step": 0.0, "wall": 0.1, "cpu": 0.1, "queued": 0.0, "each": EACH}
BASE = Checkout(Path("/base"), Path("/head"), Path("/head"))
BUILT = facts()


class FakeChild:
    """Writes down what happens to it; `strays` is what each side would find imported from the working tree."""

    log: list[str]
    strays: list[str]
    room: dict[str, Any]

    def __init__(self, fresh: bool, folder: Path | None) -> None:
        self.name = "base" if folder else "head"
        self.note("start")

    def note(self, what: str) -> None:
        self.log.append(f"{what} {self.name}")

    def send(self, command: dict[str, Any]) -> None:
        assert command["do"] == "build"

    def receive(self, timeout: float) -> dict[str, Any]:
        self.note("built")
        return to_json(replace(BUILT, strays=tuple(self.strays)))

    def ask(self, command: dict[str, Any], timeout: float) -> dict[str, Any]:
        self.note(command["do"])
        if command["do"] == "room":
            return self.room
        return {"strays": self.strays} if command["do"] == "strays" else dict(BLOCK)

    def pause(self) -> None: ...

    def close(self) -> None:
        self.note("close")


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> type[FakeChild]:
    monkeypatch.setattr(pair_lab, "Child", FakeChild)
    monkeypatch.setattr(pair_lab, "nursery", lambda: None)
    monkeypatch.setattr(pair_lab, "usable_cores", lambda: 2)
    FakeChild.log, FakeChild.strays, FakeChild.room = [], [], {}
    return FakeChild


def told(side: Side, base: Checkout | None) -> dict[str, Any]:
    return PairLab([], base, "cpu")._build(Target("train.py"), side, 7)


def test_both_sides_are_relocated_and_their_memory_scattered() -> None:
    base, head = told("base", BASE), told("head", BASE)
    assert (base.pop("in_place"), head.pop("in_place")) == (False, True)
    assert base == head
    assert base["relocated"] == ["/head", "/base"]
    assert base["scattered"] is True
    assert base["seed"] == 7


@pytest.mark.parametrize("side", ["base", "head"])
def test_without_a_reference_elsewhere_nothing_is_relocated(side: Side) -> None:
    assert told(side, None)["relocated"] is None


def test_both_sides_are_opened_at_once_and_on_one_core_one_after_the_other(
    children: type[FakeChild], monkeypatch: pytest.MonkeyPatch, project: Any
) -> None:
    project(**{"train.py": ""})
    lab = PairLab([Target("train.py")], BASE)
    ready = ["built {0}", "block {0}", "block {0}", "strays {0}"]
    head, base = ([line.format(side) for line in ready] for side in ("head", "base"))
    children.log.clear()
    lab.open(0, "head", 1)
    assert children.log == ["start head", "start base", *head, *base]
    children.log.clear()
    monkeypatch.setattr(pair_lab, "usable_cores", lambda: 1)
    lab.open(0, "base", 1)
    assert children.log == ["start base", *base, "room base", "start head", *head]


@pytest.mark.parametrize(("free", "fits"), [(109, False), (111, True), (None, True)])
def test_both_sides_fit_with_something_to_spare(
    children: type[FakeChild], monkeypatch: pytest.MonkeyPatch, project: Any, free: int | None, fits: bool
) -> None:
    project(**{"train.py": ""})
    monkeypatch.setattr(pair_lab, "usable_cores", lambda: 1)
    children.room = {"taken": 100 << 30, "free": free and free << 30}
    opened = PairLab([Target("train.py")], BASE).open(0, "head", 1)
    assert (list(opened), isinstance(opened["head"], TrialFailed)) == (["head", "base"] if fits else ["head"], not fits)
    if not fits:
        assert "one has taken 100.0 GiB, 109.0 GiB are free beside it" in str(opened["head"])


def test_only_the_reference_is_refused_for_what_it_imports(children: type[FakeChild], project: Any) -> None:
    project(**{"train.py": ""})
    children.strays = ["model.py"]
    opened = PairLab([Target("train.py")], BASE).open(0, "head", 1)
    assert isinstance(opened["base"], TrialFailed)
    assert "it imports model.py from the working tree" in str(opened["base"])
    assert not isinstance(opened["head"], TrialFailed)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(NoBatches("the script ended"), TrialEnded), (TargetError("the script left with code 1"), TrialFailed)],
)
def test_a_script_that_leaves_with_a_fault_in_a_later_step_has_failed(error: Exception, kind: type[Exception]) -> None:
    holder = Holder()

    def step(fixed: bool) -> None:
        raise error

    holder.built, holder.training = True, SimpleNamespace(whole_step=step)

    class Child:
        def ask(self, command: dict[str, Any], timeout: float) -> dict[str, Any]:
            reply = answer(holder, command)
            raise ChildFailed(reply["fault"], reply["message"])

    with pytest.raises(TrialFailed, match=f"^{error}$") as raised:
        SideSubject(Child(), 1.0, "head").block(4)  # type: ignore[arg-type]  # only what it is asked is looked at
    assert raised.type is kind
