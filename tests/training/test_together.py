"""Several variants in place at once: entered in order, left in the reverse one, each asked what of it did not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from perfaudit.training.together import Together


@dataclass
class Told:
    """A variant that writes down what it is told to do."""

    name: str
    log: list[str]
    missing: list[str] = field(default_factory=list)
    raises: bool = False

    def enter(self) -> None:
        self.log.append(f"enter {self.name}")
        if self.raises:
            raise ValueError(self.name)

    def leave(self) -> None:
        self.log.append(f"leave {self.name}")

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        self.log.append(f"watch {self.name}")
        work()
        return self.missing


def test_variants_are_left_in_the_reverse_order() -> None:
    log: list[str] = []
    both = Together([Told("a", log), Told("b", log)])
    both.enter()
    both.leave()
    assert log == ["enter a", "enter b", "leave b", "leave a"]


def test_all_are_left_where_one_cannot_be_entered() -> None:
    log: list[str] = []
    both = Together([Told("a", log), Told("b", log, raises=True), Told("c", log)])
    with pytest.raises(ValueError, match="b"):
        both.enter()
    both.leave()
    assert log == ["enter a", "enter b", "leave c", "leave b", "leave a"]


def test_each_says_what_did_not_run_and_the_work_is_done_once() -> None:
    log: list[str] = []
    all_of_it = Together([Told("a", log, ["f"]), Told("b", log), Told("c", log, ["g", "h"])])
    assert sorted(all_of_it.parts_not_run(lambda: log.append("work"))) == ["f", "g", "h"]
    assert log.count("work") == 1
    assert log[-1] == "work"
    assert sorted(log[:-1]) == ["watch a", "watch b", "watch c"]


def test_none_at_all_does_the_work_too() -> None:
    log: list[str] = []
    none = Together([])
    none.enter()
    assert none.parts_not_run(lambda: log.append("work")) == []
    none.leave()
    assert log == ["work"]
