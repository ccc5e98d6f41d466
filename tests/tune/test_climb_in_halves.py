"""Climbing with half of the patches in place at a time: what is known of them together, and when they are raced once more."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from fake_clock import FakeClock
from switches import Shop, Switch, Switches
from test_climb import Climbing, Two, climbing, independent, ladder, patched

from perfaudit.measure.child import ChildFailed
from perfaudit.measure.watch import Watch
from perfaudit.tune.recording import begin
from perfaudit.tune.screening import APART

__all__ = ["climbing"]  # a fixture


def halved(clock: FakeClock, speed: object = independent, **given: object) -> Shop:
    return Shop(clock, speed, in_halves=True, **given)  # type: ignore[arg-type]


KNOBS = [Switch("a"), Switch("b"), Switch("c")]


def test_what_saves_is_stacked_and_its_figures_say_what_was_beside_it(climbing: Climbing, clock: FakeClock) -> None:
    report = climbing(halved(clock), *KNOBS)
    found = ladder(report)
    assert [(rung.knob, rung.dropped, rung.in_halves) for rung in found.rungs] == [("a", "", True), ("b", "", True)]
    assert [rung.ratio for rung in found.rungs] == [pytest.approx(0.7), pytest.approx(0.9)]
    assert (found.ratio, found.basis, found.trouble) == (pytest.approx(0.63), "measured", "")
    assert not found.untested
    assert patched(report) == {"a": 1, "b": 1, "c": 0}
    compared = {item.knob: item for item in report.comparisons}
    assert all(item.in_halves and item.basis == "screened" for item in compared.values())
    assert report.calibration is not None and report.calibration.in_halves
    assert report.calibration.ratio == pytest.approx(1.0)


def test_with_time_the_race_of_all_of_it_and_without_each_is_run_too(climbing: Climbing, clock: FakeClock) -> None:
    found = ladder(climbing(halved(clock), *KNOBS))
    assert [rung.beside and rung.beside[0] for rung in found.rungs] == [pytest.approx(0.7), pytest.approx(0.9)]


def test_a_patch_that_another_makes_useless_is_taken_out_where_there_is_time(
    climbing: Climbing, clock: FakeClock
) -> None:
    """b does all that a does and more. With half of the others in place, a gains half the time."""

    def speed(on: Switches) -> float:
        return 0.6 if on["b"] else 0.8 if on["a"] else 1.0

    found = ladder(climbing(halved(clock, speed), *KNOBS))
    assert {rung.knob: rung.dropped for rung in found.rungs} == {
        "a": "beside the others it takes 1.000 [1.000, 1.000] of the time without it", "b": "",
    }  # fmt: skip
    assert found.ratio == pytest.approx(0.6)


def test_in_a_short_time_the_sum_of_what_each_gains_is_what_all_of_it_gains(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time is left for racing all of it together."""
    monkeypatch.setattr("switches.STEP", 0.25)
    shop = halved(clock, lambda on: (0.82 if on["a"] else 1.0) * (0.85 if on["b"] else 1.0), noise=0.05)
    report = climbing(shop, *KNOBS, budget=38.0)
    found = ladder(report)
    assert {rung.knob for rung in found.rungs if not rung.dropped} == {"a", "b"}
    assert patched(report) == {"a": 1, "b": 1, "c": 0}
    assert all(rung.beside is None for rung in found.rungs)
    assert found.screened is not None
    ratio, low, high = found.screened
    assert low < 0.82 * 0.85 < high < 0.9
    one, other = (rung for rung in found.rungs if not rung.dropped)
    assert ratio == pytest.approx(one.ratio * other.ratio)  # type: ignore[operator]
    assert (low, high) == (pytest.approx(one.low * other.low), pytest.approx(one.high * other.high))


def test_after_a_step_that_fails_with_two_in_place_each_is_raced_alone_and_the_report_says_so(
    climbing: Climbing, clock: FakeClock
) -> None:
    def fails(on: Switches) -> None:
        if on["a"] and on["c"]:
            raise ValueError("shapes do not match")

    report = climbing(halved(clock, fails=fails), *KNOBS)
    assert patched(report) == {"a": 1, "b": 1, "c": 0}
    assert any(note.startswith(f"{APART}: with it, a step raises shapes do not match") for note in report.notes)


def test_a_process_that_dies_with_two_in_place_blames_neither(climbing: Climbing, clock: FakeClock) -> None:
    def crashes(on: Switches) -> None:
        if on["a"] and on["c"]:
            raise ChildFailed("crash", "the process ended by signal SIGSEGV")

    report = climbing(halved(clock, crashes=crashes), *KNOBS)
    assert patched(report) == {"a": 1, "b": 1, "c": 0}
    assert any(note.startswith(f"{APART}: the process ended by signal SIGSEGV") for note in report.notes)
    assert not ladder(report).failed


def test_a_process_that_dies_with_one_in_place_blames_that_one_even_after_it_died_with_several(
    climbing: Climbing, clock: FakeClock
) -> None:
    def crashes(on: Switches) -> None:
        if on["c"] and shop.blocks > 8:
            raise ChildFailed("crash", "the process ended by signal SIGSEGV")

    shop = halved(clock, crashes=crashes)
    report = climbing(shop, *KNOBS)
    assert patched(report) == {"a": 1, "b": 1, "c": 0}
    assert ladder(report).failed == ("c",)


@pytest.mark.parametrize(
    ("seed", "taken", "left"),
    [
        (1, 2, ""),  # the race goes on until it is decided
        (
            4,
            1,
            "a=2 looks faster than what is in the patch, and is undecided: it took 0.889 [0.754, 1.049] of your step (screened)",
        ),
    ],
)
def test_a_setting_is_not_taken_while_another_of_its_knob_looks_clearly_faster(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seed: int, taken: int, left: str
) -> None:
    """The faster one scatters more, so that the other one is shown to pay first."""
    monkeypatch.setattr("switches.STEP", 0.1)
    draw = random.Random(seed)

    def speed(on: Switches) -> float:
        return {0: 1.0, 1: 0.95, 2: 0.85 * math.exp(draw.gauss(0.0, 0.25))}[on["a"]]

    report = climbing(halved(clock, speed, noise=0.03), Two("a"), Switch("b"), budget=20.0)
    assert patched(report) == {"a": taken, "b": 0, "c": 0}
    told = [item for item in ladder(report).left if item.knob == "a"]
    assert [(item.reason, item.late) for item in told] == ([(left, False)] if left else [])
    assert ("the budget was too small for b, a: give it longer with --budget" in report.notes) is bool(left)
    assert "a" not in ladder(report).undecided


def test_an_interrupted_climb_goes_on_with_the_pairs_that_it_has(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.05)
    monkeypatch.setattr("perfaudit.tune.screening.TOLD", 0.1)

    def speed(on: Switches) -> float:
        return (0.7 if on["a"] else 1.0) * (0.97 if on["b"] else 1.0)

    class Stopping(Watch):
        slices = 0

        def standings(self, rows: object) -> None:
            self.slices += 1
            if self.slices > 4:
                raise KeyboardInterrupt

    first = climbing(halved(clock, speed, noise=0.08), *KNOBS, begin=begin(Path(), False), watch=Stopping())
    assert first.interrupted
    known = {item.knob: item.n for item in first.comparisons}
    again = climbing(halved(clock, speed, noise=0.08), *KNOBS, begin=begin(Path(), True))
    assert patched(again)["a"] == 1
    assert all(item.n >= known.get(item.knob, 0) for item in again.comparisons)
    assert all(item.in_halves for item in again.comparisons)
