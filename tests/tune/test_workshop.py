"""Who answers what is asked of the user's training as it is: one child, which is raced in afterwards, while there is room."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.measure.ledger import Variant
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target
from perfaudit.tune import workshop
from perfaudit.tune.workshop import Children

PLAIN = Variant("survey", "", {})
BLOCK = {"do": "block", "steps": 1}


class FakeChild:
    """Answers, and keeps a list of all that were started."""

    all: list[FakeChild]

    def __init__(self, fresh: bool = False) -> None:
        self.is_closed = False
        self.all.append(self)

    def __enter__(self) -> FakeChild:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, command: dict[str, Any], timeout: float) -> dict[str, Any]:
        return {"has_ended": False}

    def pause(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    FakeChild.all = []
    monkeypatch.setattr(workshop, "Child", FakeChild)
    monkeypatch.setattr(workshop, "nursery", lambda: None)
    monkeypatch.setattr(workshop, "may_have_accelerator", lambda: False)
    return Children(Target("train.py", {}), "cpu", Watch(), 10.0)


def has_room(monkeypatch: pytest.MonkeyPatch, *free: int) -> None:
    left = list(free)
    monkeypatch.setattr(workshop, "free_memory", lambda: left.pop(0) if len(left) > 1 else left[0])


def test_one_child_answers_and_is_raced_in(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    has_room(monkeypatch, 100, 90)
    children.ask(PLAIN, BLOCK)
    children.ask(PLAIN, BLOCK)
    children.ask(Variant("other", "optimizer", {"fused": True}, applied="a:b"), BLOCK)
    children.engine()
    assert [child.is_closed for child in FakeChild.all] == [False, True]


def test_steps_in_one_thread_start_no_training_again(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    has_room(monkeypatch, 100, 90)
    monkeypatch.setattr(FakeChild, "ask", lambda *_: {"has_ended": False, "host": {"threads": 2}})
    children.ask(PLAIN, BLOCK)
    children.ask(PLAIN, BLOCK, {"do": "asleep", "steps": 2})
    assert [child.is_closed for child in FakeChild.all] == [False]


@pytest.mark.parametrize(("free", "accelerator"), [((100, 50), False), ((100, 90), True)])
def test_no_child_waits_where_it_takes_room_from_others(
    children: Children, monkeypatch: pytest.MonkeyPatch, free: tuple[int, int], accelerator: bool
) -> None:
    has_room(monkeypatch, *free)
    monkeypatch.setattr(workshop, "may_have_accelerator", lambda: accelerator)
    children.ask(PLAIN, BLOCK)
    assert [child.is_closed for child in FakeChild.all] == [True]


def test_no_child_waits_longer_than_its_workshop(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    has_room(monkeypatch, 100, 90)
    with workshop.workshop_for(None, children.target, "cpu", Watch(), 10.0) as shop:
        shop.ask(PLAIN, BLOCK)
        assert not FakeChild.all[0].is_closed
    assert FakeChild.all[0].is_closed
    with workshop.workshop_for(shop, children.target, "cpu", Watch(), 10.0) as same:
        assert same is shop
