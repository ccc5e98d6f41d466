"""Half of the candidates in place at a time in a running training: who can be, what a fault does, what is put back."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clocked_training import Training, no_twin, set_clock, user_module
from fake_clock import FakeClock
from test_screening import Builder, Loader, OtherRank, Turns, twin_of

from perfaudit.measure.entrants import BASE, CONTROL, DECIDED, HALVES, TWIN_CONTROL, Entrant, Terms
from perfaudit.measure.pace import LEAST_DEVICE_STEPS
from perfaudit.measure.preparation import DIVERGES, Candidate, LeavesSomething
from perfaudit.measure.screening import Screening
from perfaudit.measure.screening_start import prepare_screening
from perfaudit.measure.twins import Twins
from perfaudit.training.setting_variant import SettingVariant

TEXT = """
cost = 1.0
def first(clock):
    clock.sleep(0.4)
def second(clock):
    clock.sleep(0.4)
def forward(clock):
    first(clock)
    second(clock)
    clock.sleep(0.2 * cost)
"""


@pytest.fixture
def training(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    set_clock(clock, monkeypatch)
    with user_module("user_parts", TEXT, tmp_path) as module:
        yield Training(module, clock)


def patch_of(training: Training, key: str, function: str, new: str) -> Candidate:
    """A patch of the one line of a function."""
    path = training.module.__file__
    old = f"def {function}(clock):\n    clock.sleep(0.4)"
    assert old in TEXT
    after = TEXT.replace(old, f"def {function}(clock):\n    {new}")
    return Candidate(key, {path: [TEXT, after]}, slot=key)


def cheaper(training: Training, key: str, cost: float = 0.5) -> Candidate:
    @contextlib.contextmanager
    def inside() -> Iterator[None]:
        before, training.module.cost = training.module.cost, cost
        yield
        training.module.cost = before

    return Candidate(key, settings=[SettingVariant(inside)], slot=key)


def begun(training: Training, *candidates: Candidate, is_apart: bool = False, **given: Any) -> Screening:
    terms: Any = (training, candidates, Terms(0.01, 1, is_apart=is_apart), Twins(no_twin))
    return prepare_screening(*terms, **given)


def ratios(state: dict[str, Any]) -> dict[str, float]:
    return {key: entrant["interval"][0] for key, entrant in state["entrants"].items() if entrant["interval"]}


def test_code_and_settings_are_in_place_together_and_all_is_put_back(training: Training) -> None:
    marks: list[str] = []
    own = training.module.first.__code__, training.module.second.__code__
    race = begun(
        training, patch_of(training, "a", "first", "clock.sleep(0.2)"),
        patch_of(training, "b", "second", "clock.sleep(0.3)"), cheaper(training, "c"), mark=marks.append,
    )  # fmt: skip
    state = race.run(1e9)
    assert (training.module.first.__code__, training.module.second.__code__, training.module.cost) == (*own, 1.0)
    assert {key: entrant["left"] for key, entrant in state["entrants"].items()} == {
        **dict.fromkeys("abc", DECIDED), CONTROL: "",
    }  # fmt: skip
    assert state["in_halves"] == ["a", "b", "c", CONTROL]
    assert "a & b & c & control" in marks and "a & b" in marks and CONTROL in marks
    # 0.2, 0.1 and 0.1 of a step of 1.0, with half of the others in place: of steps from 0.7 to 1.0.
    found = ratios(state)
    assert 1 - 0.2 / 0.8 < found["a"] < 1 - 0.2
    assert 1 - 0.1 / 0.7 < found["b"] < 1 - 0.1
    assert found["b"] == pytest.approx(found["c"], abs=1e-6)
    assert found[CONTROL] == pytest.approx(1.0, abs=0.003)  # what three do to each other can look as if it did it
    # What all save together is in the product of what each does.
    assert math.prod(found[key] for key in "abc") == pytest.approx(0.6, rel=0.01)
    base = state["base"]
    assert base["steps"] and base["wall"] / base["steps"] == pytest.approx(1.0)  # only steps with nothing in place


def test_the_two_blocks_of_a_pair_are_next_to_each_other(training: Training) -> None:
    """Of one of the halves that is nothing: no uncounted steps of the base come before it, as before blocks of quads."""
    race = begun(training, cheaper(training, "a", cost=0.9), cheaper(training, "b", cost=0.8))
    asked = [race._turn]
    made = []

    def step() -> None:
        made.append(asked[-1])
        own()

    own, training.whole_step = training.whole_step, step  # type: ignore[method-assign]
    while asked[-1] is not None and len(asked) < 400:
        race.run(0.01)  # one turn
        asked.append(race._turn)
    assert any(turn is not None and turn.in_pair and turn.key == BASE for turn in asked)
    assert len(made) == sum(turn.steps for turn in asked if turn is not None)


def test_those_that_change_the_same_function_are_never_in_place_together(training: Training) -> None:
    marks: list[str] = []
    two = [patch_of(training, key, "first", f"clock.sleep({seconds})") for key, seconds in (("a", 0.2), ("b", 0.3))]
    race = begun(training, *two, cheaper(training, "c"), mark=marks.append)
    assert sorted(map(sorted, race.race.slots)) == [["a", "b"], ["c"], [CONTROL]]
    state = race.run(1e9)
    assert not any({"a", "b"} <= {*mark.split(" & ")} for mark in marks)
    assert any({"a", "c"} <= {*mark.split(" & ")} for mark in marks)
    assert ratios(state)["a"] < ratios(state)["b"] < 1


def test_the_control_is_a_copy_where_no_patch_is(training: Training) -> None:
    race = begun(training, patch_of(training, "a", "first", "clock.sleep(0.2)"), cheaper(training, "c"))
    own = training.module.first.__code__
    seen: dict[str, Any] = {}
    step = training.whole_step

    def looked_at(fixed: bool = False) -> None:
        seen[race._has_turn] = training.module.first.__code__
        step(fixed)

    training.whole_step = looked_at  # type: ignore[method-assign]
    race.run(1e9)
    assert seen[BASE] is own
    assert seen[CONTROL] is not own and seen[CONTROL].co_consts == own.co_consts
    assert 0.2 in seen["a & control"].co_consts
    assert seen["c & control"] is seen[CONTROL]


def test_where_a_step_fails_with_two_in_place_both_are_raced_by_themselves(training: Training) -> None:
    """Each runs alone. What was seen so far is kept, and neither is blamed."""
    faulty = f"clock.sleep(0.2 if __import__('sys').modules['{training.module.__name__}'].cost == 1.0 else 1 / 0)"
    race = begun(training, patch_of(training, "a", "first", faulty), cheaper(training, "c"))
    own = training.module.first.__code__
    state = race.run(1e9)
    assert state["apart"].startswith("with it, a step raises ZeroDivisionError")
    assert (state["trouble"], state["ended"]) == ("", True)
    assert {key: entrant["left"] for key, entrant in state["entrants"].items() if key != CONTROL} == {
        "a": DECIDED, "c": DECIDED,
    }  # fmt: skip
    assert ratios(state) == pytest.approx({"a": 0.8, "c": 0.9, CONTROL: 1.0})
    assert (training.module.first.__code__, training.module.cost) == (own, 1.0)


def test_where_losses_become_nan_with_two_in_place_both_are_raced_by_themselves(training: Training) -> None:
    race = begun(training, patch_of(training, "a", "first", "clock.sleep(0.2)"), cheaper(training, "c"))
    step = training.whole_step

    def diverging(fixed: bool = False) -> None:
        step(fixed)
        together = training.module.cost == 0.5 and 0.2 in training.module.first.__code__.co_consts
        training.last_loss = math.nan if together else 1.0

    training.whole_step = diverging  # type: ignore[method-assign]
    state = race.run(1e9)
    assert state["apart"] == DIVERGES and state["learns"]
    assert ratios(state) == pytest.approx({"a": 0.8, "c": 0.9, CONTROL: 1.0})


def test_what_cannot_be_taken_back_with_others_leaves_the_mark_of_all_of_them(training: Training) -> None:
    marks: list[str] = []
    entered: list[int] = []

    @contextlib.contextmanager
    def sticking() -> Iterator[None]:
        entered.append(1)
        yield
        if len(entered) > 6:
            raise RuntimeError("it stays")

    sticks = Candidate("s", settings=[SettingVariant(sticking)], slot="s")
    with pytest.raises(LeavesSomething, match="it stays"):
        begun(training, sticks, patch_of(training, "a", "first", "clock.sleep(0.2)"), mark=marks.append).run(1e9)
    assert "s" in marks[-1].split(" & ")


@pytest.mark.parametrize("why", ["no slot", "apart", "twin"])
def test_others_are_raced_by_themselves(training: Training, why: str) -> None:
    """A finding's fix, which is priced by itself; all of them after a fault; and what is no part of this training."""
    marks: list[str] = []
    mine = [patch_of(training, "a", "first", "clock.sleep(0.2)"), patch_of(training, "b", "second", "clock.sleep(0.3)")]
    if why == "no slot":
        mine = [Candidate(each.key, each.code) for each in mine]
    if why == "twin":
        mine = [Candidate(each.key, way="control", slot=each.key) for each in mine]
    race = begun(training, *mine, is_apart=why == "apart", mark=marks.append)
    state = race.run(200.0)
    assert not any("&" in mark for mark in marks)
    assert state["in_halves"] == []


def test_one_patch_and_the_control_are_two_halves(training: Training) -> None:
    race = begun(training, patch_of(training, "a", "first", "clock.sleep(0.2)"))
    state = race.run(1e9)
    assert state["in_halves"] == ["a", CONTROL]
    assert ratios(state) == pytest.approx({"a": 0.8, CONTROL: 1.0})


def test_beside_a_twin_those_in_halves_have_a_control_of_their_own(training: Training) -> None:
    build = Builder(training, fast=0.5)
    race = prepare_screening(
        training, [twin_of("fast"), patch_of(training, "a", "first", "clock.sleep(0.2)")], Terms(0.01, 1), Twins(build)
    )
    state = race.run(1e9)
    assert state["ways"] == {"a": "code", "fast": "twin", CONTROL: "code", TWIN_CONTROL: "twin"}
    assert state["in_halves"] == ["a", CONTROL]
    assert ratios(state) == pytest.approx({"a": 0.8, "fast": 0.5, CONTROL: 1.0, TWIN_CONTROL: 1.0})
    assert race.prepared.variants[TWIN_CONTROL] is build.made["as it is"]


@pytest.mark.parametrize(("way", "quads"), [("twin", 3), (HALVES, 0), ("code", 0)])
def test_a_control_goes_on_with_what_one_of_its_way_has_shown(training: Training, way: str, quads: int) -> None:
    """Beside a twin alone it is one, too, whatever the controls of other processes were."""
    controls = {way: Entrant(CONTROL, [0.0] * 3, [1.0] * 3)}
    terms, twins = Terms(0.01, 1, controls=controls), Twins(Builder(training, fast=0.5))
    race = prepare_screening(training, [twin_of("fast")], terms, twins).race
    assert len(race.entrants[CONTROL].log_ratios) == quads


def test_without_memory_for_the_twin_of_the_control_there_is_that_of_halves_alone(training: Training) -> None:
    build = Builder(training, fast=0.5, **{"as it is": "memory does not hold it"})
    race = prepare_screening(
        training, [twin_of("fast"), patch_of(training, "a", "first", "clock.sleep(0.2)")], Terms(0.01, 1), Twins(build)
    )
    assert race.prepared.ways == {"a": "code", "fast": "twin", CONTROL: "code"}
    assert ratios(race.run(1e9)) == pytest.approx({"a": 0.8, "fast": 0.5, CONTROL: 1.0})


def test_a_script_that_ends_with_two_in_place_before_anything_is_known_says_so(training: Training) -> None:
    """It has no next step to try one of them in: whoever asked builds it again, and puts one in place at a time."""
    faulty = f"clock.sleep(0.2 if __import__('sys').modules['{training.module.__name__}'].cost == 1.0 else 1 / 0)"
    race = begun(training, patch_of(training, "a", "first", faulty), cheaper(training, "c"))
    step = training.whole_step

    def ending(fixed: bool = False) -> None:
        try:
            step(fixed)
        except ZeroDivisionError:
            training.has_ended = True
            raise

    training.whole_step = ending  # type: ignore[method-assign]
    state = race.run(1e9)
    assert state["trouble"].startswith("a step raises ZeroDivisionError")
    assert state["apart"].startswith("with it, a step raises ZeroDivisionError")
    assert not any(entrant["log_ratios"] or entrant["left"] for entrant in state["entrants"].values())


def test_losses_that_are_nan_once_with_two_in_place_end_nothing(training: Training) -> None:
    race = begun(training, patch_of(training, "a", "first", "clock.sleep(0.2)"), cheaper(training, "c"))
    step, seen = training.whole_step, [0]

    def overflowing(fixed: bool = False) -> None:
        step(fixed)
        together = training.module.cost == 0.5 and 0.2 in training.module.first.__code__.co_consts
        seen[0] += together
        training.last_loss = math.nan if together and seen[0] == 1 else 1.0

    training.whole_step = overflowing  # type: ignore[method-assign]
    state = race.run(1e9)
    assert (state["apart"], state["learns"], state["in_halves"]) == ("", True, ["a", "c", CONTROL])


def test_a_fault_of_another_rank_with_two_in_place_has_both_raced_by_themselves(training: Training) -> None:
    other = OtherRank("with it, a step raises OSError on rank 1")
    candidates = patch_of(training, "a", "first", "clock.sleep(0.2)"), cheaper(training, "c")
    race = begun(training, *candidates, agreement=other)
    # The other rank raises when both are put in place for the first time.
    race.mark = lambda key: setattr(other, "at", other.asked + 1) if {"a", "c"} <= {*key.split(" & ")} else None
    own = training.module.first.__code__
    state = race.run(1e9)
    assert (state["apart"], state["trouble"]) == ("with it, a step raises OSError on rank 1", "")
    assert {key: state["entrants"][key]["left"] for key in "ac"} == {"a": DECIDED, "c": DECIDED}
    assert ratios(state) == pytest.approx({"a": 0.8, "c": 0.9, CONTROL: 1.0})
    assert (training.module.first.__code__, training.module.cost) == (own, 1.0)


def test_on_a_device_blocks_of_pairs_are_as_long_as_those_of_the_base(training: Training) -> None:
    """Beside a loader with workers, which has quads of whole rounds of them: the host must run ahead in each block."""
    loader = Loader(training, 0.5, num_workers=4, prefetch_factor=2)
    candidates = patch_of(training, "a", "first", "clock.sleep(0.2)"), cheaper(training, "c")
    race = prepare_screening(
        training, [*candidates, Candidate("loader", loader=loader)], Terms(0.01, 1), Turns(), runs_behind=True
    )
    turns = []
    while (turn := race._turn) is not None and len(turns) < 2000:
        turns.append(turn)
        race.run(0.01)  # one turn
    pairs, quads = [turn for turn in turns if turn.in_pair], [turn for turn in turns if turn.key == "loader"]
    assert {turn.steps for turn in pairs} == {LEAST_DEVICE_STEPS}
    assert {turn.steps for turn in quads if turn.is_timed} == {8}
    assert not any("loader" in race.race.together.get(turn.key, ()) for turn in pairs)
    # 0.2 and 0.1 of a step of 1.0, with half of the others in place; the loader makes it one of 0.9 by itself.
    found = ratios(race.state())
    assert 1 - 0.2 / 0.9 < found["a"] < 1 - 0.2 and 1 - 0.1 / 0.8 < found["c"] < 1 - 0.1
    assert found["loader"] == pytest.approx(0.9)
