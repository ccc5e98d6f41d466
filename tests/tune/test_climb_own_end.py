"""Climbing in a script that raises and ends while candidates are raced: whose fault that is, and what is known afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_clock import FakeClock
from switches import Shop, Switch, Switches
from test_climb import Climbing, climbing, ladder

from perfaudit.errors import NothingMeasured
from perfaudit.tune.race_results import NOT_KNOWN
from perfaudit.tune.screening import APART, BUILT_AGAIN, TAKE_TURNS

__all__ = ["climbing"]  # a fixture

MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'checkpoints/1.pt' (t.py:40 in save)"


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)


# What is in place then: the code as it is, the control, one of them or several. One that ends with several, then with one of them
# and never again is not among these: there nobody knows.
CASES = [*((last, False) for last in range(120, 128)), (120, True), (122, True), (123, True), (124, True), (126, True)]


@pytest.mark.parametrize(("last", "in_halves"), CASES)
def test_an_error_that_a_script_ends_with_whatever_is_in_place_is_its_own(
    climbing: Climbing, clock: FakeClock, last: int, in_halves: bool
) -> None:
    """A folder for checkpoints that is not there: the script raises when it first saves."""

    def ends(updates: int, on: Switches) -> str:
        return MISSING if updates >= last else ""

    def speed(on: Switches) -> float:
        return (0.85 if on["a"] else 1.0) * (0.95 if on["b"] else 1.0) * (0.95 if on["c"] else 1.0)

    shop = Shop(clock, speed, ends=ends, in_halves=in_halves, noise=0.1)
    report = climbing(shop, Switch("a"), Switch("b"), Switch("c"))
    assert "a" in [rung.knob for rung in ladder(report).rungs if not rung.dropped]
    assert not ladder(report).failed
    told = f"t.py ends by itself with {MISSING} after "
    assert any(note.startswith(f"{BUILT_AGAIN}: {told}") for note in report.notes)
    assert not any("with it" in note or note.startswith(APART) for note in report.notes)


@pytest.mark.parametrize(("last", "gain", "said"), [(30, 0.05, ""), (60, 0.0, f"; {NOT_KNOWN}")])
def test_an_error_that_a_script_ends_with_where_one_patch_is_in_place_is_of_that_one(
    climbing: Climbing, clock: FakeClock, last: int, gain: float, said: str
) -> None:
    """That is sure once the script has come further without it, which it does while others are open."""

    def ends(updates: int, on: Switches) -> str:
        return MISSING if on["b"] and updates > last else ""

    shop = Shop(clock, lambda on: (0.7 if on["a"] else 1.0) * (1.0 - gain * on["c"]), ends=ends, noise=0.05)
    found = ladder(climbing(shop, Switch("a"), Switch("b"), Switch("c")))
    assert {item.knob: item.reason for item in found.left}["b"] == f"turn b on: with it, a step raises {MISSING}{said}"


def test_a_script_that_ends_so_before_anything_is_known_is_nothing_measured(
    climbing: Climbing, clock: FakeClock
) -> None:
    shop = Shop(clock, lambda on: 1.0, ends=lambda updates, on: MISSING)
    with pytest.raises(NothingMeasured, match="ends by itself with FileNotFoundError"):
        climbing(shop, Switch("a"))


@pytest.mark.parametrize(
    ("lasts", "said"),
    [
        (12, "too few to decide a, and a longer --budget does not help"),
        (100, "so that it was started again and again and a stayed undecided"),
    ],
)
def test_a_script_too_short_to_decide_anything_is_told_to_train_longer(
    climbing: Climbing, clock: FakeClock, lasts: int, said: str
) -> None:
    """A longer budget is not what is wanting."""
    Path("t.py").write_text("EPOCHS = 2\n" + Path("t.py").read_text())
    shop = Shop(clock, lambda on: 0.97 if on["a"] else 1.0, lasts=lasts, noise=0.5)
    report = climbing(shop, Switch("a"), budget=8.0)
    longer = "have it train longer, on more data or for more epochs: `EPOCHS = 2` in t.py:1"
    told = f"t.py: the script ended after {lasts} updates of its optimizers, {said}: {longer}"
    assert any(note.startswith(told) for note in report.notes), report.notes
    assert not any("the budget was too small" in note for note in report.notes)


def test_one_end_in_a_long_race_is_no_reason_to_train_longer(climbing: Climbing, clock: FakeClock) -> None:
    shop = Shop(clock, lambda on: 0.97 if on["a"] else 1.0, lasts=500, noise=0.5)
    report = climbing(shop, Switch("a"), budget=8.0)
    assert any(note.startswith(f"{BUILT_AGAIN}: t.py: the script ended after") for note in report.notes), report.notes
    assert any(note.startswith("the budget was too small for a") for note in report.notes), report.notes
    assert not any("train longer" in note for note in report.notes)


def test_a_script_that_raises_by_itself_is_not_told_to_train_longer(climbing: Climbing, clock: FakeClock) -> None:
    shop = Shop(clock, lambda on: 1.0 - 0.03 * on["a"], ends=lambda n, on: MISSING if n >= 40 else "", noise=0.5)
    report = climbing(shop, Switch("a"), Switch("b"), Switch("c"), budget=8.0)
    assert any("t.py ends by itself with" in note for note in report.notes), report.notes
    assert any(note.startswith("the budget was too small for ") for note in report.notes), report.notes
    assert not any("train longer" in note for note in report.notes), report.notes


def test_a_script_that_ends_before_one_comparison_is_told_what_sets_its_length(
    climbing: Climbing, clock: FakeClock
) -> None:
    shop = Shop(clock, lambda on: 1.0, lasts=2)
    with pytest.raises(NothingMeasured, match="the script ended after 2 updates"):
        climbing(shop, Switch("a"))


def test_an_order_of_steps_that_one_process_sees_holds_for_the_next_ones(climbing: Climbing, clock: FakeClock) -> None:
    """On a busy machine the next one may not see it, and its pairs would scatter."""
    shop = Shop(clock, lambda on: 0.7 if on["a"] else 1.0, lasts=40, noise=0.3, period=2)
    report = climbing(shop, Switch("a"))
    assert (shop.periods[0], {*shop.periods[1:]}) == (1, {2})
    assert report.notes.count(TAKE_TURNS.format(2)) == 1
