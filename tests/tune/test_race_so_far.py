"""What a resumed race takes over of what earlier runs have noted."""

from __future__ import annotations

from typing import Any

from perfaudit.measure.entrants import CONTROL, DECIDED, HALVES, TWIN_CONTROL
from perfaudit.measure.halves import Pair
from perfaudit.tune.race_results import Raced
from perfaudit.tune.race_so_far import Lineup, RaceSoFar

AB: list[Pair] = [(["a"], ["b", CONTROL], -0.1), (["a", "b"], [CONTROL], -0.2)]
BC: list[Pair] = [(["b"], ["c", CONTROL], -0.1), (["b", "c"], [CONTROL], -0.2)]  # when `a` had left


def race_of(**texts: str) -> RaceSoFar:
    """A race of patches with these texts."""
    entrants = [{"key": key, "whole": {"t.py": text}} for key, text in texts.items()]
    return RaceSoFar(Lineup(entrants, {}), Raced())


def told(quads: int, left: str = "") -> dict[str, Any]:
    return {"log_ratios": [-0.1] * quads, "seconds": [1.0] * quads, "left": left, "interval": [0.9, 0.8, 0.95, quads]}


def quads_of(told: dict[str, Any]) -> dict[str, int]:
    return {key: len(item["log_ratios"]) for key, item in told.items()}


def noted(pairs: list[Pair], quads: dict[str, int], **texts: str) -> dict[str, Any]:
    """What a run leaves in which these were raced in halves; `a` has left."""
    race = race_of(**texts)
    race.take(
        {
            "entrants": {key: told(each, DECIDED if key == "a" else "") for key, each in quads.items()},
            "ways": {}, "base": {"steps": 0.0}, "ended": False, "in_halves": [*quads], "pairs": pairs,
        }
    )  # fmt: skip
    return race.note()


QUADS = {"a": 2, "b": 4, "c": 2, CONTROL: 4}


def test_a_race_of_the_same_code_goes_on_with_all_pairs() -> None:
    race = race_of(a="1", b="2", c="3")
    race.recall([noted([*AB, *BC], QUADS, a="1", b="2", c="3")])
    assert race.pairs == [*AB, *BC]
    assert {key: len(item["log_ratios"]) for key, item in race.told.items()} == QUADS


def test_pairs_with_a_patch_that_is_other_code_now_are_left_out() -> None:
    """Of `b` and `c` there are pairs without it, so that they go on with these; the patch itself begins anew."""
    race = race_of(a="another", b="2", c="3")
    race.recall([noted([*AB, *BC], QUADS, a="1", b="2", c="3")])
    assert race.pairs == BC
    assert {key: len(item["log_ratios"]) for key, item in race.told.items()} == {"b": 4, "c": 2, CONTROL: 4}
    assert [item["key"] for item in race.waiting()] == ["a", "b", "c"]


def test_what_is_left_without_pairs_begins_anew() -> None:
    """What `b` was seen to gain came from pairs that are of other code: it has its looks once more."""
    race = race_of(a="1", b="2", c="another")
    race.recall([noted(BC, {"b": 2, "c": 2, CONTROL: 2}, a="1", b="2", c="3")])
    assert race.pairs == []
    assert {key: (item["log_ratios"], item["interval"]) for key, item in race.told.items()} == {
        "b": ([], None), CONTROL: ([], None),
    }  # fmt: skip
    assert race.raced.interval("b") is None


def test_pairs_with_a_patch_that_is_not_raced_any_more_are_kept() -> None:
    race = race_of(b="2", c="3")
    race.recall([noted([*AB, *BC], QUADS, a="1", b="2", c="3")])
    assert race.pairs == [*AB, *BC]


def test_a_patch_that_is_what_it_was_two_runs_ago_has_no_pairs_of_the_run_between() -> None:
    first = noted(AB, {"a": 2, "b": 2, CONTROL: 2}, a="1", b="2")
    second = race_of(a="1", b="another")
    second.recall([first])
    assert second.pairs == []
    second.pairs = [*AB]  # of the other code
    second.told["b"] = told(2)
    race = race_of(a="1", b="2")
    race.recall([first, second.note()])
    assert race.pairs == [] and race.told["b"]["log_ratios"] == []


def test_a_control_goes_on_with_the_quads_of_those_that_it_stands_beside() -> None:
    """A patch that is raced in halves and begins anew leaves the control of twins what it has."""
    race = race_of(a="1", b="2")
    race.take(
        {
            "entrants": {"a": told(0), "b": told(6), CONTROL: told(4), TWIN_CONTROL: told(8)}, "ways": {TWIN_CONTROL: "twin"},
            "base": {"steps": 0.0}, "ended": False, "in_halves": ["a", CONTROL],
        }
    )  # fmt: skip
    race.end_process()
    assert quads_of(race.quads_of(race.waiting())) == {"a": 0, "b": 6}
    assert quads_of(race.controls_beside(race.waiting())) == {HALVES: 0, "twin": 6}
    assert [(key, seen.way) for key, seen in race.raced.former_controls] == [(CONTROL, HALVES), (TWIN_CONTROL, "twin")]


def test_the_values_of_a_control_are_kept_by_its_way() -> None:
    """It is that of twins where no halves are left to race: pairs of blocks say nothing of a twin, and its own quads do."""
    race = race_of(a="1", b="2")
    state = {"base": {"steps": 0.0}, "ended": False}
    race.take(
        {
            "entrants": {"a": told(4, DECIDED), "b": told(6), CONTROL: told(4), TWIN_CONTROL: told(5)},
            "ways": {CONTROL: "code", TWIN_CONTROL: "twin"}, "in_halves": ["a", CONTROL], **state,
        }
    )  # fmt: skip
    race.end_process()
    assert quads_of(race.controls_beside(race.waiting())) == {HALVES: 0, "twin": 5}
    race.take({"entrants": {"b": told(9), CONTROL: told(8)}, "ways": {CONTROL: "twin"}, **state})
    race.end_process()
    assert quads_of(race.controls_beside(race.waiting())) == {HALVES: 0, "twin": 8}
    race.told["a"] = told(3)  # it is open again, as it is where nobody is to blame
    assert quads_of(race.controls_beside(race.waiting())) == {HALVES: 3, "twin": 8}
