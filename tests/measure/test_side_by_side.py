"""Another copy of a training is built only where it fits beside the ones that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from surveys import facts

from perfaudit.measure import child, environment, lab
from perfaudit.measure.child_subject import ChildSubject
from perfaudit.measure.facts import to_json
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Variant
from perfaudit.measure.runner import TooLarge, TrialFailed
from perfaudit.measure.side_by_side import why_not_beside

GIB = 1 << 30


@pytest.mark.parametrize(
    ("more", "free", "taken", "device", "fits"),
    [
        (1, 70 * GIB, 60 * GIB, "cuda", True),
        (1, 60 * GIB, 60 * GIB, "cuda", False),  # another copy needs its context, and may need a little more
        (1, 40 * GIB, 41 * GIB, "cuda", False),
        (2, 100 * GIB, 60 * GIB, "cuda", False),
        (0, 0, 60 * GIB, "cuda", True),  # nothing else is to be built
        (1, 2 * GIB, GIB, "cpu", True),
        (3, 2 * GIB, GIB, "cpu", False),
        (1, None, GIB, "mps", True),  # nothing is known
        (1, 5, None, "mps", True),
    ],
)
def test_what_fits_beside_a_copy(more: int, free: int | None, taken: int | None, device: str, fits: bool) -> None:
    why = why_not_beside(more, {"free": free, "taken": taken}, device)
    assert (why == "") == fits
    assert fits or why.startswith("measured one after the other, with wider intervals: ")


@pytest.mark.parametrize(
    ("device", "what", "needed"), [("cpu", "memory", 2 * 11 * GIB), ("cuda", "the device", 2 * 11 * GIB + GIB)]
)
def test_copies_fit_to_the_byte(device: str, what: str, needed: int) -> None:
    """A tenth more than one has taken, and half a GiB for the context of each process on a device."""
    taken = 10 * GIB
    assert why_not_beside(2, {"free": needed, "taken": taken}, device) == ""
    assert why_not_beside(2, {"free": needed - 1, "taken": taken}, device) == (
        f"measured one after the other, with wider intervals: 3 copies of this training do not fit into {what} side by side "
        f"(one has taken 10.0 GiB, {needed / GIB:.1f} GiB are free beside it)"
    )


class FakeChild:
    """A training on a described device."""

    alive: list[FakeChild]
    most = 0
    room: dict[str, Any]
    log: list[str]
    by_child: list[str]
    device = "cuda"

    def __init__(self, fresh: bool = False) -> None:
        self.number, self.doing = len(FakeChild.alive), ""
        FakeChild.alive.append(self)
        FakeChild.most = max(FakeChild.most, len(FakeChild.alive))

    def send(self, command: dict[str, Any]) -> None:
        assert self in FakeChild.alive
        self.doing = command["do"]
        FakeChild.log.append(self.doing)
        FakeChild.by_child.append(f"{self.doing} {self.number}")

    def receive(self, timeout: float) -> dict[str, Any]:
        FakeChild.by_child.append(f"{self.doing} {self.number} done")
        if self.doing == "room":
            return FakeChild.room
        block = {"steps": 1, "wall": 0.1, "cpu": 0.1, "samples": 8}
        block |= {"each": {"seconds": [0.1], "samples": [8], "with_restarts": False}}
        built = to_json(facts(device={"type": FakeChild.device}))
        return built if self.doing == "build" else block if self.doing == "block" else {}

    def ask(self, command: dict[str, Any], timeout: float) -> dict[str, Any]:
        self.send(command)
        return self.receive(timeout)

    def pause(self) -> None: ...

    def close(self) -> None:
        if self in FakeChild.alive:
            FakeChild.alive.remove(self)


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> type[FakeChild]:
    monkeypatch.setattr(lab, "Child", FakeChild)
    monkeypatch.setattr(lab, "may_have_accelerator", lambda: True)
    monkeypatch.setattr(lab, "usable_cores", lambda: 4)
    FakeChild.alive, FakeChild.most, FakeChild.log, FakeChild.by_child = [], 0, [], []
    return FakeChild


VARIANTS = [Variant(key, "", {}) for key in ("a", "b", "c")]


def test_the_first_copy_is_asked_before_the_second_is_built(described: type[FakeChild]) -> None:
    described.room = {"free": 100 * GIB, "taken": 10 * GIB}
    opened = ChildLab({}, "auto").open(VARIANTS)
    assert (len(opened), described.most) == (3, 3)
    assert described.log[:4] == ["build", "block", "block", "room"]


@pytest.mark.parametrize(("device", "is_early"), [("cpu", True), ("cuda", False)])
def test_workers_of_a_loader_start_while_others_make_their_first_steps(
    described: type[FakeChild], monkeypatch: pytest.MonkeyPatch, device: str, is_early: bool
) -> None:
    monkeypatch.setattr(lab, "may_have_accelerator", lambda: False)
    monkeypatch.setattr(described, "device", device)
    described.room = {"free": 100 * GIB, "taken": 10 * GIB}
    a, b = Variant("a", "", {}), Variant("b", "", {}, untimed=25)
    opened = ChildLab({}, "auto", known={"a": 0.1, "b": 0.1}).open([a, b])
    assert [item.seconds_per_step for item in opened.values() if isinstance(item, ChildSubject)] == [0.1, 0.1]
    built = ["build 0", "build 1", "build 0 done", "build 1 done"]
    base, other = ["block 0", "block 0 done"], ["block 1", "block 1 done"]
    assert described.by_child == built + ([other[0], *base, other[1]] if is_early else [*base, *other])


def test_a_second_copy_that_does_not_fit_is_never_begun(described: type[FakeChild]) -> None:
    described.room = {"free": 60 * GIB, "taken": 70 * GIB}
    with pytest.raises(TooLarge, match="3 copies of this training do not fit into the device side by side"):
        ChildLab({}, "auto").open(VARIANTS)
    assert (described.most, described.alive) == (1, [])


def test_what_a_check_builds_beside_it_is_counted(described: type[FakeChild]) -> None:
    described.room = {"free": 25 * GIB, "taken": 10 * GIB}  # two more fit, and not the one that a check compares with
    ChildLab({}, "auto").open(VARIANTS)
    for one in list(described.alive):
        one.close()
    with pytest.raises(TooLarge):
        ChildLab({}, "auto", check=lambda *_: None).open(VARIANTS)


def test_a_single_copy_leaves_before_what_it_is_checked_against_is_built(described: type[FakeChild]) -> None:
    def check(asked: Any, variant: Variant, facts: Any) -> None:
        asked.ask({"do": "losses"}, 1.0)
        assert described.alive == []

    opened = ChildLab({}, "auto", check=check).open(VARIANTS[:1])
    assert not isinstance(opened["a"], TrialFailed)
    assert (described.most, len(described.alive)) == (1, 1)  # built again, to be measured


def test_whether_there_may_be_an_accelerator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment.sys, "platform", "linux")
    monkeypatch.setattr(environment, "_DEVICES", tmp_path)
    (tmp_path / "nvidia-caps").mkdir()
    assert not environment.may_have_accelerator()
    (tmp_path / "nvidia0").touch()
    assert environment.may_have_accelerator()
    monkeypatch.setattr(environment.sys, "platform", "darwin")
    assert environment.may_have_accelerator()


def test_a_process_that_has_ended_holds_nothing() -> None:
    import os

    assert child._is_there(os.getpid()) and not child._is_there(1 << 30)


def test_a_child_that_answers_once_answers_nothing_more_and_says_so() -> None:
    class Once:
        def ask(self, command: dict[str, Any], timeout: float) -> dict[str, Any]:
            return command

        def close(self) -> None:
            pass

    leaving = lab._Leaving(Once())  # type: ignore[arg-type]  # only what it is asked is looked at
    assert leaving.ask({"do": "losses"}, 1.0) == {"do": "losses"}
    with pytest.raises(child.ChildFailed, match="has left"):
        leaving.ask({"do": "memory"}, 1.0)


def test_no_steps_are_made_to_find_out_how_long_one_takes_where_that_is_known(described: type[FakeChild]) -> None:
    described.room = {"free": 100 * GIB, "taken": 10 * GIB}
    lab = ChildLab({}, "auto")
    lab.known = {"b": 0.2}
    opened = lab.open(VARIANTS)
    assert described.log.count("block") == 5
    assert [one.seconds_per_step for one in opened.values() if isinstance(one, ChildSubject)] == [0.1, 0.2, 0.1]
