"""Climbing, with trainings that take as long as their source says: what is accepted, dropped, left, and handed over.

The program is a row of switches, `a = 0`; a knob's patch turns one on, and how long a step takes is a function of them all.
Races are run as `switches` has them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import profile_of, survey_of
from switches import STEP, Agreeing, Engine, Shop, Speed, Switch, Switches, switches

from perfaudit.errors import NothingMeasured
from perfaudit.findings import Fix, Location
from perfaudit.knobs import Bench, Knob, Survey
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.entrants import BASE, CONTROL, TWIN_CONTROL
from perfaudit.measure.facts import Script
from perfaudit.measure.journal import all_runs
from perfaudit.measure.ledger import Variant
from perfaudit.measure.watch import Standing, Watch
from perfaudit.measurements import FILE_CHANGED, NOT_REACHED_YET, UNCHECKED, Ladder, Settings
from perfaudit.render.ladder import headline
from perfaudit.render.text import render
from perfaudit.report import Report, to_json
from perfaudit.target.names import Target
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.climb import _least_to_check
from perfaudit.tune.climb_behind import race_behind
from perfaudit.tune.climb_choice import choose
from perfaudit.tune.climb_state import Climb, without
from perfaudit.tune.climb_time import UntilSomeGoTogether, UntilTold
from perfaudit.tune.climb_together import _is_shown
from perfaudit.tune.history import comparisons
from perfaudit.tune.ladder import OF_A_TWIN
from perfaudit.tune.profile import Profile
from perfaudit.tune.race_results import Seen, doubt_of
from perfaudit.tune.recording import begin
from perfaudit.tune.report import tune
from perfaudit.tune.session import Session

PROGRAM = "import torch\n\na = 0\nb = 0\nc = 0\n"


WAITED = "not judged: other programs use the cores, and where they do not, another setting may be best"


def independent(on: Switches) -> float:
    """a saves 30 %, b 10 %, c nothing."""
    return (0.7 if on["a"] else 1.0) * (0.9 if on["b"] else 1.0)


def seconds_of_two(on: Switches) -> float:
    """a saves half, b 20 %."""
    return (0.5 if on["a"] else 1.0) * (0.8 if on["b"] else 1.0)


Climbing = Callable[..., Report]


@pytest.fixture
def climbing(monkeypatch: pytest.MonkeyPatch, clock: FakeClock, project: Callable[..., Path]) -> Climbing:
    """`climbing(speed, knob, ...)` climbs with these knobs within a budget."""
    project(**{"t.py": PROGRAM})

    def run(
        speed: Speed | Shop, *knobs: Knob, budget: float = 400.0, allow: str = "rounding", **options: Any
    ) -> Report:
        monkeypatch.setattr("perfaudit.tune.patched_source.Verifier", Agreeing)
        monkeypatch.setattr("perfaudit.tune.search.Verifier", Agreeing)
        for each in knobs:
            module = types.ModuleType(f"perfaudit.knobs.{each.name}")
            module.KNOB = each  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, module.__name__, module)
        names = [each.name for each in knobs]
        shop = speed if isinstance(speed, Shop) else Shop(clock, speed)
        allowed = frozenset(allow.split(",")) - {""}
        return tune(Target("t.py", {}), names, budget, workshop=shop, clock=clock, allow=allowed, **options)

    return run


def ladder(report: Report) -> Ladder:
    assert report.ladder is not None
    return report.ladder


def patched(report: Report) -> Switches:
    """The switches of the program with the patch that is handed over, applied as anybody would."""
    from perfaudit.static.patching import plan_writes

    (item,) = plan_writes(ladder(report).files, Path.cwd())
    return switches(item.after.decode())


def test_what_saves_is_stacked_and_what_does_not_is_left(climbing: Climbing) -> None:
    report = climbing(independent, Switch("a"), Switch("b"), Switch("c"))
    found = ladder(report)
    assert [(rung.knob, rung.dropped) for rung in found.rungs] == [("a", ""), ("b", "")]  # the larger gain first
    assert found.rungs[0].ratio == pytest.approx(0.7)
    assert found.rungs[1].ratio == pytest.approx(0.9)  # by itself
    assert [rung.beside and rung.beside[0] for rung in found.rungs] == [pytest.approx(0.7), pytest.approx(0.9)]
    assert (found.ratio, found.basis, found.trouble) == (pytest.approx(0.63), "measured", "")
    assert found.screened is not None
    assert found.screened[0] == pytest.approx(0.63)
    assert (found.seconds_per_step, found.patched_seconds_per_step) == (
        pytest.approx(STEP),
        pytest.approx(0.63 * STEP),
    )
    assert patched(report) == {"a": 1, "b": 1, "c": 0}
    assert (found.peak_memory_bytes, found.patched_peak_memory_bytes) == (100, 102)
    compared = {item.knob: item for item in report.comparisons}
    assert {name: (item.basis, item.way, item.given_up) for name, item in compared.items()} == {
        "a": ("screened", "code", False), "b": ("screened", "code", False), "c": ("screened", "code", True),
    }  # fmt: skip
    assert [(winner.knob, winner.saving and winner.saving.basis) for winner in report.winners] == [
        ("a", "screened"),
        ("b", "screened"),
    ]
    control = report.calibration
    assert control is not None
    assert (control.ratio, control.low, control.high) == (pytest.approx(1.0), pytest.approx(1.0), pytest.approx(1.0))
    assert control.control_way == "code"
    assert Path("t.py").read_text() == PROGRAM


def test_a_rung_that_a_later_one_makes_useless_is_taken_out_again(climbing: Climbing) -> None:
    """b does all that a does and more: with b, a is worth nothing."""

    def speed(on: Switches) -> float:
        return 0.6 if on["b"] and on["a"] else 0.6 if on["b"] else 0.8 if on["a"] else 1.0

    report = climbing(speed, Switch("a"), Switch("b"))
    found = ladder(report)
    assert [(rung.knob, bool(rung.dropped)) for rung in found.rungs] == [("b", False), ("a", True)]
    assert "of the time without it" in found.rungs[1].dropped
    assert found.ratio == pytest.approx(0.6)
    assert patched(report) == {"a": 0, "b": 1, "c": 0}


def test_nothing_is_taken_out_by_a_race_whose_control_is_off(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside b, which does all that a does, a would be taken out; but there identical code is told apart too."""
    screen = Engine.screen

    def off_beside_the_others(self: Engine, entrants: list[Any], *rest: Any, **more: Any) -> Any:
        shop.control = 1.05 if more["base"] else 1.0
        return screen(self, entrants, *rest, **more)

    def speed(on: Switches) -> float:
        return 0.6 if on["b"] else 0.8 if on["a"] else 1.0

    monkeypatch.setattr(Engine, "screen", off_beside_the_others)
    shop = Shop(clock, speed)
    report = climbing(shop, Switch("a"), Switch("b"))
    assert [(rung.knob, rung.dropped) for rung in ladder(report).rungs] == [("b", ""), ("a", "")]
    assert (ladder(report).basis, ladder(report).trouble) == ("measured", "")
    (note,) = report.notes
    assert note.startswith("the race of what pays together is not to be believed") and "0.952 [0.952, 0.952]" in note


def test_what_has_a_control_of_its_own_is_taken_out_where_another_control_is_off(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside b, neither a nor c gains anything; what is in place without a is a twin, and the control of twins is off."""
    race = Engine.race

    def beside_twins(engine: Engine, seconds: float, last: bool) -> Any:
        state = race(engine, seconds, last)
        twins = [key for key in state["entrants"] if key.startswith("without a")]
        if not twins:
            return state
        off = {**state["entrants"][CONTROL], "interval": [1.05, 1.04, 1.06, 20]}
        ways = {**state["ways"], **dict.fromkeys([*twins, TWIN_CONTROL], "twin")}
        return {**state, "ways": ways, "entrants": {**state["entrants"], TWIN_CONTROL: off}}

    def speed(on: Switches) -> float:
        return 0.6 if on["b"] else (0.8 if on["a"] else 1.0) * (0.9 if on["c"] else 1.0)

    monkeypatch.setattr(Engine, "race", beside_twins)
    report = climbing(Shop(clock, speed), Switch("a"), Switch("b"), Switch("c"))
    assert {rung.knob: bool(rung.dropped) for rung in ladder(report).rungs} == {"a": False, "b": False, "c": True}
    assert any(note.startswith("the race of what pays together is not to be believed for a: ") for note in report.notes)


class Two(Switch):
    """A switch that can be turned on in two ways."""

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{self.name: 1}, {self.name: 2}]

    def words(self, settings: Settings, survey: Survey) -> str:
        return f"set {self.name} to {settings[self.name]}"


@pytest.mark.parametrize(
    ("refused", "left"),
    [({2}, {}), ({1, 2}, {"a": "set a to 1: value 1 fails; set a to 2: value 2 fails"})],
)
def test_a_knob_is_left_for_what_was_refused_where_that_is_all_of_it(
    climbing: Climbing, clock: FakeClock, refused: set[int], left: dict[str, str]
) -> None:
    shop = Shop(clock, independent, broken=lambda on: f"value {on['a']} fails" if on["a"] in refused else "")
    found = ladder(climbing(shop, Two("a"), Switch("b")))
    assert [rung.knob for rung in found.rungs] == (["b"] if left else ["a", "b"])
    assert {item.knob: item.reason for item in found.left} == left


def fails_later(*values: int, behind: int) -> Callable[[Switches], None]:
    """A step that raises with these values of a, when so many steps were made with one."""
    made: list[int] = []

    def step(on: Switches) -> None:
        made.extend([on["a"]] if on["a"] in values else [])
        if len(made) > behind and on["a"] in values:
            raise ValueError("no kernel (t.py:3)")

    return step


WHY = "with it, a step raises no kernel (t.py:3)"


@pytest.mark.parametrize("behind", [0, 5, 40])
def test_a_patch_with_which_a_later_step_raises_is_left_with_the_reason(
    climbing: Climbing, clock: FakeClock, behind: int
) -> None:
    """One that stays open for some quads too: it is neither undecided nor decided, and not handed over."""
    shop = Shop(clock, lambda on: 0.985 if on["a"] else 1.0, fails=fails_later(1, behind=behind), noise=0.05)
    report = climbing(shop, Switch("a"), Switch("c"))
    found = ladder(report)
    assert {item.knob: (item.reason, item.late) for item in found.left}["a"] == (f"turn a on: {WHY}", False)
    assert (found.failed, found.rungs, "a" in found.undecided) == (("a",), (), False)
    assert [compared.knob for compared in report.comparisons] == ["c"]
    assert not any("a" in note.split() for note in report.notes)
    assert headline(report).endswith("1 failed")


@pytest.mark.parametrize(
    ("fast", "knobs", "left"),
    [
        (0.7, ["a"], {}),  # the other setting is taken
        (1.0, [], {"a": f"set a to 2: {WHY}"}),  # the other one looked no faster
    ],
)
def test_a_setting_that_fails_beside_another_one(
    climbing: Climbing, clock: FakeClock, fast: float, knobs: list[str], left: dict[str, str]
) -> None:
    shop = Shop(clock, lambda on: fast if on["a"] else 1.0, fails=fails_later(2, behind=5))
    found = ladder(climbing(shop, Two("a")))
    assert [rung.knob for rung in found.rungs] == knobs
    assert ({item.knob: item.reason for item in found.left}, found.failed) == (left, ())


def test_what_a_step_raises_is_known_where_the_race_is_interrupted(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    shop = Shop(clock, seconds_by_knob, fails=fails_later(1, behind=5), noise=0.05, dies_at=100)
    report = climbing(shop, Switch("a"), Switch("b"))
    assert report.interrupted
    assert [(item.knob, item.reason) for item in ladder(report).left] == [("a", f"turn a on: {WHY}")]


def test_an_offer_that_fails_is_none(climbing: Climbing, clock: FakeClock) -> None:
    shop = Shop(clock, independent, fails=fails_later(1, behind=5))
    found = ladder(climbing(shop, Switch("a", ("precision",)), Switch("c")))
    assert {item.knob: item.reason for item in found.left}["a"] == f"turn a on: {WHY}"


def test_a_knob_of_which_one_setting_is_taken_is_not_undecided(climbing: Climbing, clock: FakeClock) -> None:
    speeds = {0: 1.0, 1: 0.5, 2: 0.985}
    shop = Shop(clock, lambda on: speeds[on["a"]], noise=0.1)
    report = climbing(shop, Two("a"), budget=40.0)
    assert [rung.settings for rung in ladder(report).rungs] == [{"a": 1}]
    assert (ladder(report).undecided, report.notes) == ((), ())


@pytest.mark.parametrize("speeds", [(0.7, 1.2), (1.2, 0.7), (0.7, 0.9), (0.9, 0.7)])
def test_of_several_offers_of_a_knob_the_best_is_told(
    climbing: Climbing, clock: FakeClock, speeds: tuple[float, float]
) -> None:
    shop = Shop(clock, lambda on: (1.0, *speeds)[on["a"]])
    (left,) = ladder(climbing(shop, Two("a", ("precision",)), Switch("b"))).left
    assert left.reason.startswith(
        f"set a to {1 + speeds.index(0.7)}: would take 0.70 [0.70, 0.70] of the step (screened); "
    )


def test_two_that_exclude_each_other_leave_the_better_one(climbing: Climbing) -> None:
    def speed(on: Switches) -> float:
        return 1.3 if on["a"] and on["b"] else independent(on)

    report = climbing(speed, Switch("a"), Switch("b"))
    assert [(rung.knob, bool(rung.dropped)) for rung in ladder(report).rungs] == [("a", False), ("b", True)]
    assert ladder(report).ratio == pytest.approx(0.7)
    assert patched(report) == {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize(
    ("knob", "allow", "reason"),
    [
        (Switch("a", ("rng",)), "rounding", "it changes rng; allow that with --allow rounding,rng"),
        (Switch("a", ("rounding", "order")), "rounding", "it changes order; allow that with --allow rounding,order"),
        (Switch("a", ("rounding",)), "", "it changes rounding; allow that with --allow rounding"),
        (
            Switch("a", line=False),
            "rounding",
            "no line of yours was found that could be edited for it with certainty; --a",
        ),
    ],
)
def test_what_is_not_climbed_is_named_with_the_reason(climbing: Climbing, knob: Knob, allow: str, reason: str) -> None:
    report = climbing(independent, knob, Switch("b"), allow=allow)
    found = ladder(report)
    assert [rung.knob for rung in found.rungs] == ["b"]
    said = {item.knob: item.reason for item in [*found.left, *report.not_applicable]}
    assert said["a"].startswith(reason)


@pytest.mark.parametrize(
    ("allow", "budget", "said"),
    [
        ("rounding", 400.0, r"turn a on: would take 0\.70 \[0\.\d+, 0\.\d+\] of the step \(screened\); {}"),
        ("rounding", 3.0, "not measured, for want of time; {}"),
        ("", 400.0, "it changes precision; allow that with --allow precision"),
    ],
)
def test_what_fewer_bits_would_gain_is_told_with_the_flag_and_nothing_is_taken(
    climbing: Climbing, allow: str, budget: float, said: str
) -> None:
    report = climbing(independent, Switch("a", ("precision",)), Switch("b"), allow=allow, budget=budget)
    found = ladder(report)
    assert [rung.knob for rung in found.rungs] == ["b"]
    assert found.changes == ()
    if found.files:
        assert patched(report) == {"a": 0, "b": 1, "c": 0}
    (left,) = [item.reason for item in found.left if item.knob == "a"]
    assert re.fullmatch(said.format("it changes precision: --allow rounding,precision"), left), left
    assert [item.late for item in found.left if item.knob == "a"] == [budget == 3.0]
    is_told = "would take" in said
    assert found.offered == (("a",) if is_told else ())
    assert ("; a would pay and is not allowed" in headline(report)) is is_told
    assert found.allow_command == (
        "perfaudit tune t.py --a --b --allow rounding,precision --budget 400s" if is_told else ""
    )
    assert set(found.offered_ratios) == set(found.offered)
    assert all(winner.fix is None for winner in report.winners if winner.knob == "a")
    assert report.not_applicable == ()
    flag = "not allowed, and so not raced in this time: a; --allow rounding,precision races it"
    assert (flag in report.notes) is (budget == 3.0)
    assert not any(note.startswith("the budget was too small for a") for note in report.notes)


def test_what_could_gain_little_gives_way_where_time_is_short(climbing: Climbing) -> None:
    class Small(Switch):
        def share(self, survey: Survey) -> float:
            return 0.04

    for budget, raced in ((2.0, ["a"]), (60.0, ["a", "b"])):
        report = climbing(independent, Switch("a"), Small("b"), budget=budget)
        assert [item.knob for item in report.comparisons] == raced
        said = {item.knob: item.reason for item in ladder(report).left}
        assert said == (
            {} if "b" in raced else {"b": "not measured, for want of time; it could gain 4 % of the step at most"}
        )


@pytest.mark.parametrize("is_broken", [True, False])
def test_what_was_left_out_is_raced_where_nothing_else_can_be(
    climbing: Climbing, clock: FakeClock, is_broken: bool
) -> None:
    """A patch with which a step raises ends a script within a few seconds, and the rest of the budget is there."""

    class Small(Switch):
        def share(self, survey: Survey) -> float:
            return 0.04

    def crashes(on: Switches) -> None:
        if on["a"] and is_broken:
            raise ChildFailed("crash", "with it, a step raises ValueError")

    report = climbing(Shop(clock, independent, crashes=crashes), Switch("a"), Small("b"), budget=2.6)
    assert [item.knob for item in report.comparisons] == ["b" if is_broken else "a"]
    (left,) = ladder(report).left
    assert (left.knob, left.late) == (("a", False) if is_broken else ("b", True))


def test_what_a_busy_machine_turns_round_is_not_judged_there(climbing: Climbing, clock: FakeClock) -> None:
    class Threads(Switch):
        is_judged_on_a_busy_machine = False

    for shop, kept in ((Shop(clock, independent), ["a", "b"]), (Shop(clock, independent, queued=0.3), ["b"])):
        found = ladder(climbing(shop, Threads("a"), Switch("b")))
        assert [rung.knob for rung in found.rungs] == kept
        reasons = [item.reason for item in found.left]
        assert (reasons == []) == (kept == ["a", "b"])
        assert all(reason.startswith(WAITED) for reason in reasons)


def test_a_knob_is_left_to_another_one_that_sets_it_as_well(climbing: Climbing) -> None:
    class Both(Switch):
        def covers(self, settings: Settings) -> tuple[str, ...]:
            return ("b",)

    report = climbing(independent, Both("a"), Switch("b"), Switch("c"), skips_idle=True)
    assert {compared.knob for compared in report.comparisons} == {"a", "c"}
    (left,) = ladder(report).left
    assert (left.knob, left.reason) == ("b", "not raced by itself, but as a part of a; --b races it")
    # What may not be handed over keeps nothing from the others.
    report = climbing(independent, Both("a", changes=("precision",)), Switch("b"), skips_idle=True)
    assert [rung.knob for rung in ladder(report).rungs] == ["b"]
    # A knob that the user has named is raced by itself.
    report = climbing(independent, Both("a"), Switch("b"))
    assert {compared.knob for compared in report.comparisons} == {"a", "b"}


def test_what_a_busy_machine_turns_round_is_not_raced_there(climbing: Climbing, clock: FakeClock) -> None:
    class Threads(Switch):
        is_judged_on_a_busy_machine = False

    class Busy(Shop):
        def ask(self, variant: Variant, *commands: Any) -> Any:
            replies = super().ask(variant, *commands)
            return [{**reply, "queued": 0.3 * reply["wall"]} if "wall" in reply else reply for reply in replies]

    report = climbing(Busy(clock, independent), Threads("a"), Switch("b"))
    assert [rung.knob for rung in ladder(report).rungs] == ["b"]
    (left,) = ladder(report).left
    assert left.knob == "a" and left.reason.startswith(WAITED)
    assert {compared.knob for compared in report.comparisons} == {"b"}


def test_what_pays_is_raced_together_alone_where_the_time_is_short(
    climbing: Climbing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.climb_together.FEWEST", 1e6)
    found = ladder(climbing(independent, Switch("a"), Switch("b")))
    assert [rung.knob for rung in found.rungs] == ["a", "b"]
    assert found.untested == ("a", "b")
    assert found.screened is not None
    assert found.screened[0] == pytest.approx(0.63)


def test_a_knob_that_takes_long_is_not_begun_without_its_time(climbing: Climbing) -> None:
    long = Switch("a")
    long.seconds_needed = 90.0
    report = climbing(independent, long, Switch("b"), budget=47.0)
    (left,) = ladder(report).left
    assert (left.knob, left.late) == ("a", True)
    assert left.reason == (
        "it takes some 90 s before the race, for which all patches together have 15 % of the budget: "
        "give --budget some 554 s more, or search it alone with --a"
    )
    assert report.notes == ("the budget was too small for a: give it longer with --budget",)


def test_where_nothing_can_say_what_all_gains_together_the_first_is_handed_over(
    climbing: Climbing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.climb.seconds_together", lambda *_: 0.0)
    monkeypatch.setattr("perfaudit.tune.climb.LONGER_SHARE", 0.0)
    monkeypatch.setattr("perfaudit.tune.climb.has_time_to_race", lambda profile, patches, deadline: False)
    report = climbing(independent, Switch("a"), Switch("b"))
    assert [rung.knob for rung in ladder(report).rungs] == ["a"]
    assert patched(report) == {"a": 1, "b": 0, "c": 0}
    (left,) = ladder(report).left
    assert left.reason == (
        "turn b on: takes 0.900 [0.900, 0.900] of the step by itself (screened); there was no time to race it together with a"
    )
    assert not left.late  # it was tried
    assert report.notes == ("the budget was too small for b: give it longer with --budget",)


@pytest.mark.parametrize(("speed", "left"), [(independent, 5.0), (lambda on: 0.7 if on["a"] else 1.0, 9.0)])
def test_time_for_racing_together_goes_to_the_screening_while_one_pays(
    climbing: Climbing, clock: FakeClock, speed: Speed, left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[Any] = []
    monkeypatch.setattr("perfaudit.tune.climb.choose", lambda profile, state, seconds: states.append(state))
    climbing(speed, Switch("a"), Switch("b"))
    short, long, end = Deadline(5.0, clock), Deadline(9.0, clock), Deadline(12.0, clock)

    def two_pay() -> bool:
        return sum(map(states[0].is_sure, states[0].allowed_candidates)) > 1

    def one_pays() -> bool:
        return any(map(states[0].is_sure, states[0].allowed_candidates))

    found = UntilSomeGoTogether(short, long, end, one_pays, two_pay)
    assert (found.seconds_left(), found.share_of_end()) == (left, 1 / 3)  # it may end at any of three times
    assert UntilSomeGoTogether(short, short, end, one_pays, two_pay).share_of_end() == 0.5
    clock.sleep(6.0)
    assert found.seconds_left() == max(0.0, left - 6.0)
    assert not found.goes_on()  # there is something to check
    told, states[0].alone.entrants = states[0].alone.entrants, {}  # as if nothing paid yet
    assert (found.seconds_left(), found.share_of_end()) == (3.0, 0.0)
    clock.sleep(3.0)
    assert (found.seconds_left(), found.share_of_end()) == (0.0, 1 / 3)
    assert (found.goes_on(), found.seconds_left()) == (True, 3.0)
    sure, states[0].alone.entrants = states[0].alone.entrants, told
    assert (found.seconds_left(), found.share_of_end()) == (
        0.0,
        0.0,
    )  # one pays now: it is checked, and nobody else is judged
    states[0].alone.entrants = sure
    clock.sleep(2.5)
    assert (found.seconds_left(), found.share_of_end()) == (0.5, 1 / 3)
    assert not found.goes_on()  # once


def test_where_much_is_found_in_time_the_final_race_has_its_time(clock: FakeClock) -> None:
    """Ends: as planned, for the final race, before the check, and with the budget; each has a part of what may still miss."""
    found: list[float] = []
    short, final, long, end = (Deadline(seconds, clock) for seconds in (5.0, 8.0, 10.0, 12.0))
    until, late = (
        UntilSomeGoTogether(short, long, end, lambda: bool(found), lambda: False, final, lambda: bool(found))
        for _ in range(2)
    )
    assert (until.seconds_left(), until.share_of_end()) == (10.0, 1 / 4)
    clock.sleep(6.0)
    assert (until.seconds_left(), until.share_of_end()) == (4.0, 0.0)  # nothing is to be raced together: put off
    found.append(0.6)
    assert until.seconds_left() == 2.0
    clock.sleep(2.0)
    assert (until.seconds_left(), until.share_of_end()) == (0.0, 1 / 4)
    assert late.seconds_left() == 2.0  # so much was found when there was no time for that race any more
    assert UntilSomeGoTogether(short, long, end, lambda: True, lambda: False).seconds_left() == 2.0


def test_a_race_ends_early_by_as_long_as_its_longest_block_took(clock: FakeClock) -> None:
    short, long, end = Deadline(5.0, clock), Deadline(9.0, clock), Deadline(12.0, clock)
    none_pays = UntilSomeGoTogether(short, long, end, lambda: False, lambda: False)
    two_pay = UntilSomeGoTogether(short, long, end, lambda: True, lambda: True)
    nobody_is_told = UntilTold(short, long, Climb(frozenset()))
    deadlines = {none_pays: 9.0, two_pay: 5.0, nobody_is_told: 9.0, Deadline(5.0, clock): 5.0}
    for found, left in deadlines.items():
        found.keep(2.0)
        found.keep(1.0)
        assert found.seconds_left() == left - 2.0
    assert (short.seconds_left(), end.seconds_left()) == (5.0, 12.0)  # what comes behind the race has all of it
    clock.sleep(7.0)
    assert (none_pays.seconds_left(), none_pays.share_of_end()) == (0.0, 1 / 3)
    assert (none_pays.goes_on(), none_pays.seconds_left()) == (True, 3.0)


def test_what_the_race_has_seen_of_rounds_is_known_when_time_is_planned_behind_it(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr("perfaudit.tune.climb.choose", lambda profile, state, seconds: seen.append(profile.period))
    climbing(Shop(clock, independent, period=3), Switch("a"))
    assert seen == [3]


@pytest.mark.parametrize(("check", "budget", "least"), [(9.0, 60.0, 0.0), (9.0, 40.0, 1.0), (40.0, 60.0, 20.0)])
def test_a_check_may_outlast_a_budget_by_some_of_it(
    monkeypatch: pytest.MonkeyPatch, check: float, budget: float, least: float
) -> None:
    monkeypatch.setattr("perfaudit.tune.climb.seconds_to_check", lambda profile: check)
    assert _least_to_check(profile_of(survey_of()), budget) == pytest.approx(least)


@pytest.mark.parametrize(("slow", "is_checked"), [(90, False), (60, True)])  # it pays after that time, and before it
def test_time_that_was_kept_for_a_check_is_raced_in_where_there_is_nothing_to_check(
    climbing: Climbing, monkeypatch: pytest.MonkeyPatch, slow: int, is_checked: bool
) -> None:
    monkeypatch.setattr("perfaudit.tune.climb.seconds_to_check", lambda profile: 39.0)
    report = climbing(lambda on: slow * independent(on), Switch("a"), budget=40.0)
    found = ladder(report)
    assert [(rung.knob, rung.dropped) for rung in found.rungs] == [("a", "" if is_checked else UNCHECKED)]
    assert bool(found.files) is is_checked
    if not is_checked:
        assert headline(report).endswith(": 1 patch pays (screened), and no time was left to check a patch")
        assert report.notes == ("the budget was too small for a: give it longer with --budget",)


def test_a_race_that_the_data_end_is_judged_by_its_last_look(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends before its time because two patches are there to be raced together."""
    monkeypatch.setattr("perfaudit.tune.climb.choose", lambda profile, state, seconds: None)
    seen = Screened(monkeypatch)
    knobs = [Switch("a"), Switch("b"), Switch("c")]
    shop = Shop(clock, lambda on: seconds_of_two(on) * (0.988 if on["c"] else 1.0), noise=0.15)
    climbing(shop, *knobs, budget=40.0)
    assert seen.last and not any(seen.last)


def test_fewer_bits_that_gain_nothing_are_said_to(climbing: Climbing) -> None:
    found = ladder(climbing(independent, Switch("c", ("precision",)), Switch("a")))
    (left,) = found.left
    assert left.reason == "turn c on: looked no faster"
    assert "--allow" not in left.reason


def test_fewer_bits_that_are_allowed_are_climbed(climbing: Climbing) -> None:
    found = ladder(climbing(independent, Switch("a", ("precision",)), allow="rounding,precision"))
    assert (found.changes, found.left) == (("precision",), ())


def test_what_was_not_compared_is_not_handed_over(climbing: Climbing, monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind(Agreeing):
        def check(self, child: object, variant: Variant, survey: Survey) -> None:
            self.said[variant.key] = "not compared: the losses of the unpatched code are not finite"

    monkeypatch.setattr(sys.modules[__name__], "Agreeing", Blind)
    found = ladder(climbing(independent, Switch("a")))
    assert ([rung.knob for rung in found.rungs], found.files) == (["a"], ())
    assert found.trouble == "not handed over: not compared: the losses of the unpatched code are not finite"


def test_a_patch_that_needs_more_memory_than_there_is_is_not_accepted(climbing: Climbing) -> None:
    # With both switches a step has 102 bytes.
    report = climbing(independent, Switch("a"), Switch("b"), memory_budget=101)
    assert ladder(report).files == ()
    assert ladder(report).trouble.startswith("not handed over: the peak of a step with the patch is")


def test_what_is_allowed_is_climbed_and_its_changes_are_told(climbing: Climbing) -> None:
    found = ladder(climbing(independent, Switch("a", ("rng",)), Switch("b", ("rounding",)), allow="rounding,rng"))
    assert [rung.changes for rung in found.rungs] == [("rng",), ("rounding",)]
    assert found.changes == ("rng", "rounding")


def test_nothing_that_pays_is_no_ladder(climbing: Climbing) -> None:
    report = climbing(lambda on: 1.0 + 0.1 * on["a"], Switch("a"), Switch("b"))
    found = ladder(report)
    assert (found.rungs, found.files, found.ratio, found.trouble) == ((), (), None, "")


def test_a_patch_that_does_not_build_is_a_reason_and_the_others_go_on(climbing: Climbing, clock: FakeClock) -> None:
    shop = Shop(clock, independent, broken=lambda on: "its forward fails" if on["a"] else "")
    report = climbing(shop, Switch("a"), Switch("b"))
    assert [rung.knob for rung in ladder(report).rungs] == ["b"]
    assert {item.knob: item.reason for item in ladder(report).left} == {"a": "turn a on: its forward fails"}


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("the process ended by signal SIGSEGV", "with it in place, the process ended by signal SIGSEGV"),
        ("after a step with it, a step of your code raises", "after a step with it, a step of your code raises"),
    ],
)
def test_a_patch_with_which_the_process_dies_is_a_reason_and_the_others_go_on(
    climbing: Climbing, clock: FakeClock, failure: str, said: str
) -> None:
    def crashes(on: Switches) -> None:
        if on["a"]:
            raise ChildFailed("crash", failure)

    report = climbing(Shop(clock, independent, crashes=crashes), Switch("a"), Switch("b"))
    assert [rung.knob for rung in ladder(report).rungs] == ["b"]
    (left,) = ladder(report).left
    assert left.reason == f"turn a on: {said}"


def test_what_is_decided_is_not_raced_again_where_the_training_is_built_again(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    prepared: list[list[str]] = []
    screen = Engine.screen

    def seen(self: Engine, entrants: list[Any], *rest: Any, **more: Any) -> Any:
        prepared.append([item["key"][0] for item in entrants])
        return screen(self, entrants, *rest, **more)

    def crashes(on: Switches) -> None:
        if on["b"] and not on["a"] and shop.blocks > 120:
            raise ChildFailed("crash", "the process ended by signal SIGSEGV")

    def speed(on: Switches) -> float:
        return (0.6 if on["a"] else 1.0) * (0.98 if on["b"] else 1.0) * (0.98 if on["c"] else 1.0)

    monkeypatch.setattr(Engine, "screen", seen)
    shop = Shop(clock, speed, crashes=crashes, noise=0.05)
    report = climbing(shop, Switch("a"), Switch("b"), Switch("c"))
    assert prepared[:2] == [["a", "b", "c"], ["c"]]
    assert "a" in [rung.knob for rung in ladder(report).rungs]


class Screened:
    """What each training of a climb was given to race: keys, and how many quads each had already; whether a race was the last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: list[list[str]] = []
        self.quads: list[dict[str, int]] = []
        self.last: list[bool] = []
        screen, race = Engine.screen, Engine.race

        def screen_seen(engine: Engine, entrants: Any, *rest: Any, **more: Any) -> Any:
            self.keys.append([item["key"][0] for item in entrants])
            known = [*more["so_far"].items(), *((CONTROL, item) for item in more["controls"].values())]
            self.quads.append({key.split()[0]: len(item["log_ratios"]) for key, item in known})
            return screen(engine, entrants, *rest, **more)

        def race_seen(engine: Engine, seconds: float, last: bool) -> Any:
            self.last.append(last)
            return race(engine, seconds, last)

        monkeypatch.setattr(Engine, "screen", screen_seen)
        monkeypatch.setattr(Engine, "race", race_seen)


def test_what_is_open_goes_on_with_its_quads_and_a_control_where_the_training_is_built_again(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    seen = Screened(monkeypatch)

    def crashes(on: Switches) -> None:
        if on["b"] and not on["a"] and shop.blocks > 120:
            raise ChildFailed("crash", "the process ended by signal SIGSEGV")

    def speed(on: Switches) -> float:
        return (0.6 if on["a"] else 1.0) * (0.98 if on["b"] else 1.0) * (0.98 if on["c"] else 1.0)

    shop = Shop(clock, speed, crashes=crashes, noise=0.05)
    climbing(shop, Switch("a"), Switch("b"), Switch("c"))
    assert (seen.keys[:2], seen.quads[0]) == ([["a", "b", "c"], ["c"]], {})
    assert seen.quads[1]["c"] >= 8
    assert seen.quads[1] == {"c": seen.quads[1]["c"], "control": seen.quads[1]["c"]}


def test_a_process_that_dies_takes_no_doubt_with_it(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decided beside a control that was off stays doubtful where a later control is right."""
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    monkeypatch.setattr("perfaudit.tune.climb.has_time_to_race", lambda profile, patches, deadline: False)

    def crashes(on: Switches) -> None:
        if on["b"] and not on["a"] and shop.blocks > 120:
            shop.control = 1.0
            raise ChildFailed("crash", "the process ended by signal SIGSEGV")

    def speed(on: Switches) -> float:
        return (0.6 if on["a"] else 1.0) * (0.98 if on["b"] else 1.0) * (0.98 if on["c"] else 1.0)

    shop = Shop(clock, speed, crashes=crashes, noise=0.05, control=0.85)
    states: list[Any] = []
    monkeypatch.setattr("perfaudit.tune.climb.choose", lambda profile, state, seconds: states.append(state))
    climbing(shop, Switch("a"), Switch("b"), Switch("c"))
    (state,) = states
    ((_, former),) = state.alone.former_controls
    assert former.interval[2] < 1
    assert doubt_of(state.alone).endswith("in place of 1")


def test_losses_that_are_no_numbers_any_more_are_told(climbing: Climbing, monkeypatch: pytest.MonkeyPatch) -> None:
    race = Engine.race
    monkeypatch.setattr(Engine, "race", lambda self, seconds, last: {**race(self, seconds, last), "learns": False})
    report = climbing(independent, Switch("a"))
    (note,) = report.notes
    assert note == "the losses have become NaN or infinite: times are of a training that does not learn"
    found = ladder(report)
    assert (found.not_learning, bool(found.files), "not_learning" in to_json(report)["ladder"]) == (note, True, True)
    assert found.verified.endswith(f"; after these steps {note}")
    assert report.winners[0].verified == found.verified
    first, second = render(report).splitlines()[:2]
    assert (first.endswith("1 patch, verified for its first steps only"), second) == (True, note)
    assert render(report).count(note) == 1


def test_a_training_that_ends_during_the_race_leaves_what_is_known(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)

    def crashes(on: Switches) -> None:  # enough turns for a, and not for b
        if not any(on.values()) and shop.blocks > 120:
            raise ChildFailed("step", "t.py: the dataloader failed: no more data")

    shop = Shop(clock, lambda on: (0.7 if on["a"] else 1.0) * (0.985 if on["b"] else 1.0), crashes=crashes)
    shop.noise = 0.05
    report = climbing(shop, Switch("a"), Switch("b"))
    assert [rung.knob for rung in ladder(report).rungs] == ["a"]
    assert any("the training in which patches are raced ended early" in note for note in report.notes)
    assert patched(report) == {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize("jump", [5.0, 50.0])
def test_steps_whose_time_jumps_now_and_then_change_no_verdict(
    climbing: Climbing, clock: FakeClock, jump: float
) -> None:
    """An evaluation or a checkpoint inside every thirteenth step."""
    shop = Shop(clock, lambda on: independent(on) + (jump if shop.blocks % 13 == 0 else 0.0))
    report = climbing(shop, Switch("a"), Switch("c"))
    assert [rung.knob for rung in ladder(report).rungs] == ["a"]


def test_a_base_with_which_the_process_dies_is_nothing_measured(climbing: Climbing, clock: FakeClock) -> None:
    def crashes(on: Switches) -> None:
        raise ChildFailed("crash", "the process ended by signal SIGSEGV")

    with pytest.raises(NothingMeasured, match="your code as it is could not be measured: the process ended by signal"):
        climbing(Shop(clock, independent, crashes=crashes), Switch("a"))


def test_patches_that_fail_together_only_are_not_stacked(climbing: Climbing, clock: FakeClock) -> None:
    shop = Shop(clock, independent, broken=lambda on: "they clash" if on["a"] and on["b"] else "")
    report = climbing(shop, Switch("a"), Switch("b"))
    assert [(rung.knob, rung.dropped) for rung in ladder(report).rungs] == [
        ("a", ""),
        ("b", "beside the others its patch is refused: they clash"),
    ]
    assert ladder(report).trouble == ""
    assert patched(report) == {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize("budget", [10, 30, 60, 120])
def test_the_budget_holds_and_nothing_unproven_is_handed_over(
    climbing: Climbing, clock: FakeClock, budget: float
) -> None:
    report = climbing(independent, Switch("a"), Switch("b"), Switch("c"), budget=budget)
    found = ladder(report)
    assert clock.now() <= 1.15 * budget
    assert bool(found.files) == (found.ratio is not None and found.high < 1)
    if found.rungs and not found.files:
        assert found.trouble.startswith("not handed over: ")
    if budget == 120:
        assert [rung.knob for rung in found.rungs] == ["a", "b"]


def test_source_that_changes_while_it_is_measured_is_not_handed_over(climbing: Climbing, clock: FakeClock) -> None:
    def speed(on: Switches) -> float:
        if clock.now() > 10:
            Path("t.py").write_text(PROGRAM + "# edited meanwhile\n")
        return independent(on)

    report = climbing(speed, Switch("a"))
    assert ladder(report).files == ()
    assert report.notes == ("t.py changed while it was measured: nothing of this can be applied",)
    assert all(winner.fix is None for winner in report.winners)


def test_what_pays_is_told_where_its_file_changed_before_it_was_chosen(climbing: Climbing) -> None:
    def speed(on: Switches) -> float:
        Path("t.py").write_text(PROGRAM + "# edited meanwhile\n")
        return independent(on)

    report = climbing(speed, Switch("a"))
    found = ladder(report)
    assert [(rung.knob, rung.dropped) for rung in found.rungs] == [("a", FILE_CHANGED)]
    assert headline(report).endswith(
        ": 1 patch pays (screened), and no patch is handed over, because a file changed meanwhile"
    )
    assert f"a: it pays, and is not handed over: {FILE_CHANGED}" in render(report)
    assert report.notes == ("t.py changed while it was measured: nothing of this can be applied",)


def test_an_interrupted_climb_tells_what_was_raced_and_hands_nothing_over(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    report = climbing(Shop(clock, independent, dies_at=70), Switch("a"), Switch("b"))
    assert report.interrupted
    found = ladder(report)
    assert (found.rungs, found.files) == ((), ())
    raced = {item.knob: item.n for item in report.comparisons}
    assert min(raced["a"], raced["b"]) >= 4


def choose_only(knobs: Sequence[str]) -> Callable[[Profile, Climb, float], None]:
    """A choice that takes no other patches."""

    def choice(profile: Profile, state: Climb, seconds: float) -> None:
        choose(profile, state, seconds)
        state.rungs = [rung for rung in state.rungs if rung.knob in knobs]

    return choice


class Stopping(Watch):
    """The user types Ctrl-C when a stage begins whose title begins so."""

    def __init__(self, title: str) -> None:
        self.title = title

    def stage(self, title: str) -> None:
        if title.startswith(self.title):
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("title", "raced", "rungs"),
    [
        ("a: a switch", 0, 0),  # what a knob must know first
        ("racing all patches", 0, 0),
        ("all that pays together", 2, 2),
        ("the patch against your code", 2, 2),
    ],
)
def test_an_interruption_at_any_stage_tells_what_is_known_and_hands_nothing_over(
    climbing: Climbing, title: str, raced: int, rungs: int
) -> None:
    report = climbing(independent, Switch("a"), Switch("b"), watch=Stopping(title))
    assert report.interrupted
    assert report.notes[0] == "interrupted; what was measured until then is in this report"
    assert len(report.comparisons) == raced
    assert (len(ladder(report).rungs), ladder(report).files) == (rungs, ())


class StoppingOnceDecided(Watch):
    """The user types Ctrl-C as soon as one that is raced is decided."""

    def standings(self, rows: Sequence[Standing]) -> None:
        if any(row.left == "decided" for row in rows):
            raise KeyboardInterrupt


def test_what_was_shown_to_pay_before_an_interruption_is_told(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    shop = Shop(clock, lambda on: (0.6 if on["a"] else 1.0) * (0.985 if on["b"] else 1.0), noise=0.03)
    report = climbing(shop, Switch("a"), Switch("b"), watch=StoppingOnceDecided())
    found = ladder(report)
    assert [(rung.knob, rung.dropped) for rung in found.rungs] == [("a", NOT_REACHED_YET)]
    assert (found.files, found.undecided) == ((), ("b",))
    first = "1 patch pays (screened), and no patch was checked before the interruption; 1 undecided, interrupted"
    assert headline(report).endswith(f": {first}")
    assert f"a: it pays, and is not handed over: {NOT_REACHED_YET}" in render(report)
    report = climbing(shop, Switch("a", ("precision",)), Switch("b"), watch=StoppingOnceDecided())
    assert "; a would pay and is not allowed" in headline(report)


class Killed(BaseException):
    """What nothing catches, as a process that is killed."""


@pytest.mark.parametrize("told", [1e9, 0.2])
def test_the_history_of_a_killed_climb_has_what_was_compared(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, told: float
) -> None:
    """What was decided, and now and then how the others stand."""
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    monkeypatch.setattr("perfaudit.tune.screening.TOLD", told)

    def kill(on: Switches) -> None:
        if shop.blocks > 150:
            raise Killed

    shop = Shop(clock, lambda on: (0.7 if on["a"] else 1.0) * (0.985 if on["b"] else 1.0), crashes=kill, noise=0.02)
    with pytest.raises(Killed):
        climbing(shop, Switch("a"), Switch("b"), begin=begin(Path(), False))
    (run,) = all_runs(Path())
    seen = {row["knob"]: row for row in comparisons(run)}
    assert (run.status, run.report) == ("unfinished", None)
    assert (seen["a"]["verdict"], seen["a"]["basis"], seen["b"]["verdict"]) == ("faster", "screened", "undecided")
    assert seen["a"]["high"] < 0.75
    assert (seen["b"]["n"] > 12) is (told < 1)


def test_a_final_race_that_is_interrupted_at_its_start_leaves_the_figure_of_the_screening(
    climbing: Climbing, clock: FakeClock
) -> None:
    whole = Shop(clock, independent)
    climbing(whole, Switch("a"), Switch("b"))
    first = whole.firsts_of_labs
    report = climbing(Shop(clock, independent, dies_at=first + 2), Switch("a"), Switch("b"))
    found = ladder(report)
    assert (report.interrupted, found.basis, found.ratio) == (True, "screened", pytest.approx(0.63))
    assert found.verified == "the losses agree"
    assert patched(report) == {"a": 1, "b": 1, "c": 0}


def test_the_step_that_is_told_is_of_the_race_that_the_ratio_is_of(climbing: Climbing, clock: FakeClock) -> None:
    """Once both patches are raced together, something else makes all steps half as long again."""
    longer = [1.0]

    class Slowing(Watch):
        def stage(self, words: str) -> None:
            if words.startswith("all that pays together"):
                longer[0] = 1.5

    def speed(on: Switches) -> float:
        return longer[0] * independent(on)

    whole = Shop(clock, speed)
    climbing(whole, Switch("a"), Switch("b"), watch=Slowing())
    longer[0] = 1.0
    shop = Shop(clock, speed, dies_at=whole.firsts_of_labs + 2)
    report = climbing(shop, Switch("a"), Switch("b"), watch=Slowing())
    found = ladder(report)
    assert report.calibration is not None and report.calibration.seconds_per_step == pytest.approx(0.010)
    assert (found.basis, found.ratio) == ("screened", pytest.approx(0.63))
    assert found.seconds_per_step == pytest.approx(0.015)
    assert headline(report).startswith("15.0 ms -> 9.45 ms a step (1.59 x, screened: ")


def test_where_no_node_can_be_had_what_was_screened_is_handed_over_with_the_reason(climbing: Climbing) -> None:
    asked = list[object]()

    def refuse(like: object) -> contextlib.AbstractContextManager[None]:
        asked.append(like)
        raise NothingMeasured("the Ray cluster at h:1 (RAY_ADDRESS) cannot be joined: it asks for a token")

    report = climbing(independent, Switch("a"), Switch("b"), begin=begin(Path(), False), on="ray", nodes=refuse)
    found = ladder(report)
    assert (report.interrupted, found.basis, found.ratio) == (False, "screened", pytest.approx(0.63))
    assert found.verified == "the losses agree"
    assert patched(report) == {"a": 1, "b": 1, "c": 0}
    assert len(asked) == 1
    assert (
        "--on ray: no node measured, and the race in fresh processes was not made: the Ray cluster at h:1 (RAY_ADDRESS) "
        "cannot be joined: it asks for a token"
    ) in report.notes
    again = ladder(climbing(independent, Switch("a"), Switch("b"), begin=begin(Path(), True), on="ray"))
    assert (again.basis, again.ratio) == ("measured", pytest.approx(0.63))


@pytest.mark.parametrize(
    ("way", "is_decided", "is_said"), [("code", False, False), ("twin", False, True), ("twin", True, False)]
)
def test_what_is_only_screened_as_a_twin_says_what_its_interval_leaves_out(
    climbing: Climbing, clock: FakeClock, way: str, is_decided: bool, is_said: bool
) -> None:
    whole = Shop(clock, independent)
    climbing(whole, Switch("a"), Switch("b"))
    dies_at = sys.maxsize if is_decided else whole.firsts_of_labs + 2
    report = climbing(Shop(clock, independent, dies_at=dies_at, way=way), Switch("a"), Switch("b"))
    assert (OF_A_TWIN in report.notes, ladder(report).has_twin, bool(ladder(report).files)) == (is_said, is_said, True)


def test_an_interrupted_final_race_counts_as_far_as_it_came(climbing: Climbing, clock: FakeClock) -> None:
    whole = Shop(clock, independent)
    climbing(whole, Switch("a"), Switch("b"))
    report = climbing(Shop(clock, independent, dies_at=whole.blocks - 3), Switch("a"), Switch("b"))
    found = ladder(report)
    assert (report.interrupted, found.rounds, found.trouble) == (True, 3, "")
    assert patched(report) == {"a": 1, "b": 1, "c": 0}


@pytest.mark.parametrize(("then", "rounds"), [(("a", "b"), 3), (("a",), 0)])
def test_finished_rounds_of_the_final_race_count_where_there_is_no_time_to_go_on(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, then: tuple[str, ...], rounds: int
) -> None:
    """And those of another patch do not."""
    whole = Shop(clock, independent)
    climbing(whole, Switch("a"), Switch("b"))
    cut = Shop(clock, independent, dies_at=whole.blocks - 3)
    assert ladder(climbing(cut, Switch("a"), Switch("b"), begin=begin(Path(), False))).rounds == 3
    monkeypatch.setattr("perfaudit.tune.final.seconds_to_check", lambda profile: math.inf)
    if len(then) < 2:
        monkeypatch.setattr("perfaudit.tune.climb.choose", choose_only(then))
    found = ladder(climbing(independent, Switch("a"), Switch("b"), begin=begin(Path(), True)))
    assert ([rung.knob for rung in found.rungs], found.rounds) == ([*then], rounds)
    assert found.trouble == ""


@pytest.mark.parametrize("budget", [1.4, 1.55, 1.7, 1.9, 2.1])
def test_a_climb_resumed_with_more_time_measures_what_it_hands_over(
    climbing: Climbing, clock: FakeClock, budget: float
) -> None:
    """Another budget takes another path; races of other texts must not stand for those of this one."""

    def speed(on: Switches) -> float:
        return (
            (0.5 if on["a"] else 1.0)
            * (0.7 if on["b"] else 1.0)
            * (0.98 if on["b"] and on["c"] else 0.9 if on["c"] else 1)
        )

    knobs = [Switch("a"), Switch("b"), Switch("c")]
    climbing(speed, *knobs, budget=budget, begin=begin(Path(), False))
    report = climbing(speed, *knobs, budget=600, begin=begin(Path(), True))
    found = ladder(report)
    assert found.ratio == pytest.approx(speed(patched(report)), rel=0.01)
    assert found.low <= found.ratio <= found.high < found.low * 1.02
    for rung in found.rungs:
        assert rung.ratio == pytest.approx(speed({"a": 0, "b": 0, "c": 0, rung.knob: 1}), rel=0.01)


def test_a_resumed_climb_comes_to_the_same_ladder(climbing: Climbing, clock: FakeClock) -> None:
    knobs = [Switch("a"), Switch("b"), Switch("c")]
    whole = climbing(independent, *knobs)
    killed = climbing(Shop(clock, independent, dies_at=150), *knobs, begin=begin(Path(), False))
    assert killed.interrupted
    again = Shop(clock, independent)
    resumed = climbing(again, *knobs, begin=begin(Path(), True))
    assert [rung.knob for rung in ladder(resumed).rungs] == [rung.knob for rung in ladder(whole).rungs]
    assert ladder(resumed).files == ladder(whole).files


def seconds_by_knob(on: Switches) -> float:
    """a is decided at once; b and c are close to what they must gain, and stay open."""
    return (0.6 if on["a"] else 1.0) * (0.985 if on["b"] else 1.0) * (0.94 if on["c"] else 1.0)


def test_a_resumed_climb_races_nothing_again_that_was_decided(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice interrupted, and with more time at the end; what was open goes on with the quads of its last look."""
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    knobs = [Switch("a"), Switch("b"), Switch("c")]
    seen = Screened(monkeypatch)
    for resumed, dies_at in ((False, 140), (True, 250)):
        shop = Shop(clock, seconds_by_knob, dies_at=dies_at, noise=0.05)
        assert climbing(shop, *knobs, budget=60.0, begin=begin(Path(), resumed)).interrupted
    shop = Shop(clock, seconds_by_knob, noise=0.05)
    climbing(shop, *knobs, budget=90.0, begin=begin(Path(), True))
    assert seen.keys[:3] == [["a", "b", "c"], ["b", "c"], ["b"]]
    assert seen.quads[0] == {}
    quads = seen.quads[1]
    assert quads["control"] == min(quads["b"], quads["c"]) >= 4
    assert max(quads["b"], quads["c"]) >= 8  # the one that looked better was raced on
    assert seen.quads[2]["b"] == seen.quads[2]["control"] > quads["b"]


def test_what_a_longer_budget_adds_does_not_keep_decisions_from_being_reused(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(Switch):
        def share(self, survey: Survey) -> float:
            return 0.04

    knobs = [Switch("a"), Small("b")]
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.05)
    seen = Screened(monkeypatch)
    stopping = Stopping("the patch against your code")
    assert climbing(independent, *knobs, budget=2.5, begin=begin(Path(), False), watch=stopping).interrupted
    climbing(independent, *knobs, budget=60.0, begin=begin(Path(), True))
    assert seen.keys[:2] == [["a"], ["b"]]


def test_the_ladder_as_json(climbing: Climbing) -> None:
    data = to_json(climbing(independent, Switch("a")))["ladder"]
    assert data["rungs"][0]["knob"] == "a"
    assert data["rungs"][0]["location"]["line"] == 3
    assert data["files"][0]["path"] == "t.py"
    assert "-a = 0\n+a = 1\n" in data["files"][0]["diff"]
    assert set(data["files"][0]) >= {"before", "after"}


@pytest.mark.parametrize(("gain", "stays"), [(0.9, True), (0.94, False)])
def test_what_only_looks_as_if_it_paid_is_decided_beside_the_others(
    climbing: Climbing, clock: FakeClock, gain: float, stays: bool
) -> None:
    def speed(on: Switches) -> float:
        return (0.6 if on["a"] else 1.0) * (gain if on["b"] else 1.0) * (0.5 if on["c"] else 1.0)

    report = climbing(Shop(clock, speed, noise=0.35), Switch("a"), Switch("b"), Switch("c"), budget=21.0)
    found = ladder(report)
    rungs = {rung.knob: rung for rung in found.rungs}
    assert rungs["b"].low is not None and rungs["b"].high is not None and rungs["b"].beside is not None
    assert rungs["b"].low < 1 < rungs["b"].high  # alone
    assert (rungs["b"].dropped == "") == stays
    assert found.undecided == (() if stays else ("b",))
    assert [rungs[name].dropped for name in "ac"] == ["", ""]
    assert patched(report) == {"a": 1, "b": int(stays), "c": 1}
    assert found.screened is not None  # of two, by the races of all three and of these
    assert found.screened[1] < 0.3 * (gain if stays else 1.0) < found.screened[2]
    if stays:
        assert rungs["b"].beside[0] < 0.96
        (winner,) = (winner for winner in report.winners if winner.knob == "b")
        assert winner.saving is not None and winner.saving.high > 0
    else:
        assert rungs["b"].dropped.startswith("undecided: beside the others it takes 0.9")
        assert report.comparisons


def test_where_much_is_gained_a_measured_figure_comes_before_a_patch_that_may_gain_little(
    climbing: Climbing, clock: FakeClock
) -> None:
    def speed(on: Switches) -> float:
        return (0.6 if on["a"] else 1.0) * (0.97 if on["b"] else 1.0) * (0.5 if on["c"] else 1.0)

    report = climbing(Shop(clock, speed, noise=0.35), Switch("a"), Switch("b"), Switch("c"), budget=21.0)
    found = ladder(report)
    assert {(rung.knob, rung.beside) for rung in found.rungs} == {("a", None), ("c", None)}
    assert (found.basis, found.trouble, found.undecided) == ("measured", "", ("b",))
    assert found.ratio == pytest.approx(0.3)
    assert patched(report) == {"a": 1, "b": 0, "c": 1}


def test_in_a_short_time_what_looks_as_if_it_paid_is_raced_together_at_once(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No patch alone comes to its look; all of it does, and is handed over by that."""
    monkeypatch.setattr("switches.STEP", 0.25)
    shop = Shop(clock, lambda on: (0.82 if on["a"] else 1.0) * (0.85 if on["b"] else 1.0), noise=0.05)
    report = climbing(shop, Switch("a"), Switch("b"), Switch("c"), budget=38.0)
    found = ladder(report)
    stayed = {rung.knob: rung for rung in found.rungs if not rung.dropped}
    assert set(stayed) == {"a", "b"}
    assert patched(report) == {"a": 1, "b": 1, "c": 0}
    for rung in stayed.values():
        assert (rung.ratio, rung.low, rung.high) == (None, 0.0, math.inf)
        assert 3 <= rung.quads < 8
        assert rung.beside is not None
    assert found.screened is not None
    assert found.screened[1] < 0.82 * 0.85 < found.screened[2] < 1
    assert " too briefly " in render(report)


@pytest.mark.parametrize(("gain", "stays"), [(0.97, True), (1.0, False)])
def test_where_all_of_it_pays_what_looked_so_in_both_races_stays(gain: float, stays: bool) -> None:
    """Neither race shows it of the patch by itself; one that looks useless in one of them goes."""
    rung = Candidate("b", "fusion", {"b": 1}, Fix("b", "safe"), Location("t.py", 1, 1, 1, 2), "", "code")
    state = Climb(frozenset())
    alone, beside = [-0.05, -0.01, -0.08, -0.04], [math.log(gain) + d for d in (0.02, -0.02, 0.01, -0.01)]
    state.alone.entrants["b"], state.alone.log_ratios["b"] = Seen(4, ""), alone
    state.beside.entrants = {BASE: Seen(4, "", (0.7, 0.6, 0.8)), without(rung): Seen(4, "", (gain, 0.9, 1.05))}
    state.beside.log_ratios = {without(rung): beside}
    assert not state.is_sure(rung)
    assert _is_shown(state, rung) is stays
    state.beside.entrants[BASE] = Seen(4, "", (0.95, 0.9, 1.01))
    assert not _is_shown(state, rung)  # nothing was shown of all of it
    state.beside.entrants[without(rung)] = Seen(4, "", (0.9, 0.85, 0.95))
    assert _is_shown(state, rung)  # by its interval


def test_a_knob_that_may_not_be_raced_costs_no_process(climbing: Climbing, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[list[str]] = []

    def noting(session: Session, profile: Profile, knobs: list[str]) -> Profile:
        judged.append(knobs)
        return profile

    monkeypatch.setattr("perfaudit.tune.report.learn", noting)
    climbing(independent, Switch("a"), Switch("b", changes=("checkpoint",)), allow="rounding")
    climbing(independent, Switch("a"), Switch("b", changes=("checkpoint",)), allow="rounding,checkpoint")
    assert judged == [["a"], ["a", "b"]]


def test_what_looks_as_if_it_paid_after_the_last_look_is_told_with_its_interval(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.climb.seconds_together", lambda *_: 0.1)

    def speed(on: Switches) -> float:
        return (0.6 if on["a"] else 1.0) * (0.995 if on["b"] else 1.0)

    report = climbing(Shop(clock, speed, noise=0.2), Switch("a"), Switch("b"), budget=400.0)
    found = ladder(report)
    assert [rung.knob for rung in found.rungs] == ["a"]
    assert (found.undecided, report.notes) == ((), ())
    (left,) = found.left
    assert re.search(r"however long it is: b=1 took 0\.9\d\d \[0\.9\d\d, 1\.0\d\d\] of your step$", left.reason)
    assert found.screened is not None and found.screened[2] < 1


class Compiled(Switch):
    """A switch of a script that no training that runs can take."""

    seconds_needed = 90.0
    is_ready = True

    def raced_behind(self, survey: Survey) -> list[Settings]:
        return [{self.name: 1}]

    def prepare(self, bench: Bench, settings: Settings) -> bool:
        bench.kept["why"] = ["compiling (default) failed: no"]
        return self.is_ready


@pytest.mark.parametrize(
    ("factor", "others", "rungs", "left"),
    [
        (0.5, ["a"], ["a", "b"], {}),
        (0.5, [], ["b"], {}),
        (1.0, ["a"], ["a"], {"b": "turn b on: beside the others it takes 1.000 [1.000, 1.00"}),
    ],
)
def test_what_cannot_stand_in_a_running_training_is_raced_behind_the_others(
    climbing: Climbing, factor: float, others: list[str], rungs: list[str], left: dict[str, str]
) -> None:
    report = climbing(
        lambda on: (0.7 if on["a"] else 1.0) * (factor if on["b"] else 1.0), Compiled("b"), *map(Switch, others)
    )
    found = ladder(report)
    assert [rung.knob for rung in found.rungs] == rungs
    assert {item.knob: item.reason[:56] for item in found.left} == {name: words[:56] for name, words in left.items()}
    assert (found.trouble, found.basis) == ("", "measured")
    assert found.untested == (("a",) if len(rungs) == 2 else ())  # b came later
    assert {name for name, on in patched(report).items() if on} == set(rungs)
    assert found.ratio == pytest.approx((0.7 if others else 1.0) * (factor if "b" in rungs else 1.0))
    last = found.rungs[-1]
    if last.knob == "b":
        assert (last.beside if others else (last.ratio, last.low, last.high)) == pytest.approx((factor,) * 3)
        assert (last.ratio is None) == bool(others)
    render(report)


@pytest.mark.parametrize(
    ("budget", "is_ready", "reason", "late"),
    [
        (
            60.0, True,
            r"^trying it takes some 90 s, more than there are before the race, so it is raced in fresh processes after the "
            r"others. That takes some 1\d\d s, and \d+ s were left; give it longer with --budget, or search it alone with --b, "
            r"on your code with",
            True,
        ),
        (400.0, False, "compiling .default. failed: no", False),
    ],
)  # fmt: skip
def test_what_is_raced_behind_the_others_needs_its_time_and_must_be_ready(
    climbing: Climbing, budget: float, is_ready: bool, reason: str, late: bool
) -> None:
    module = Compiled("b")
    module.is_ready = is_ready
    found = ladder(climbing(independent, module, Switch("a"), budget=budget))
    (left,) = found.left
    assert (left.knob, left.late, [rung.knob for rung in found.rungs]) == ("b", late, ["a"])
    assert re.search(reason, left.reason)


@pytest.mark.parametrize(("changes", "rungs"), [("precision", ["b"]), ("rounding", ["a"])])
def test_what_is_not_allowed_leaves_their_time_to_those_behind(
    climbing: Climbing, clock: FakeClock, changes: str, rungs: list[str]
) -> None:
    """Of 125 s the race of a patch that is allowed has most, and what needs some 115 s is not reached behind it."""
    shop = Shop(clock, lambda on: (0.98 if on["a"] else 1.0) * (0.7 if on["b"] else 1.0), noise=0.05)
    found = ladder(climbing(shop, Switch("a", (changes,)), Compiled("b"), budget=125.0))
    assert [rung.knob for rung in found.rungs] == rungs


@pytest.mark.parametrize(
    ("is_script", "budget", "is_behind"), [(False, 590.0, True), (False, 700.0, False), (True, 700.0, True)]
)
def test_what_needs_long_before_the_race_is_raced_behind_the_others_where_the_budget_has_less(
    climbing: Climbing,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    is_script: bool,
    budget: float,
    is_behind: bool,
) -> None:
    """With factories; a script can race it in no other way."""
    behind: list[list[str]] = []
    race = race_behind

    def noting(session: Session, profile: Profile, state: Climb, deadline: Deadline) -> None:
        behind.append([each.knob for each in state.behind])
        if not is_script:
            race(session, profile, state, deadline)

    monkeypatch.setattr("perfaudit.tune.climb.race_behind", noting)
    shop = Shop(clock, seconds_of_two)
    if is_script:
        own = shop.facts
        monkeypatch.setattr(shop, "facts", lambda on: dataclasses.replace(own(on), script=Script()))
    found = ladder(climbing(shop, Compiled("b"), Switch("a"), budget=budget))
    assert behind == [["b"] if is_behind else []]
    assert is_script or [rung.knob for rung in found.rungs] == ["a", "b"]
    assert is_script or (found.rungs[1].basis == "measured") is is_behind


class OfProcess(Compiled):
    """One that needs no time before it, and holds for a whole process."""

    seconds_needed = 0.0
    is_of_process = True


def test_what_holds_for_a_whole_process_is_raced_behind_the_others(climbing: Climbing, clock: FakeClock) -> None:
    """There is time to race it beside them, which would put it into the process of the others."""
    shop = Shop(clock, lambda on: (0.7 if on["a"] else 1.0) * (0.8 if on["b"] else 1.0))
    found = ladder(climbing(shop, OfProcess("b"), Switch("a"), budget=700.0))
    assert [(rung.knob, rung.basis) for rung in found.rungs] == [("a", "screened"), ("b", "measured")]
    assert found.rungs[1].beside == pytest.approx((0.8,) * 3)


def test_without_time_for_it_what_holds_for_a_whole_process_is_named(climbing: Climbing) -> None:
    found = ladder(climbing(independent, OfProcess("b"), Switch("a"), budget=20.0))
    (left,) = [item for item in found.left if item.knob == "b"]
    assert left.late
    assert left.reason.startswith("it holds for a whole process, so it is raced in fresh processes after the others")


def test_time_is_kept_for_those_that_need_least(climbing: Climbing, clock: FakeClock) -> None:
    """Of the budget 40 % at most: enough for one that needs no time before it, not for one that is compiled as well."""
    shop = Shop(clock, lambda on: (0.7 if on["a"] else 1.0) * (0.8 if on["b"] else 1.0) * (0.9 if on["c"] else 1.0))
    found = ladder(climbing(shop, Compiled("c"), OfProcess("b"), Switch("a"), budget=100.0))
    assert [rung.knob for rung in found.rungs] == ["a", "b"]
    assert [(item.knob, item.late) for item in found.left] == [("c", True)]


def test_what_has_no_time_left_for_its_questions_is_raced_behind_the_others(
    climbing: Climbing, clock: FakeClock
) -> None:
    """Those of the knobs before it have taken too long."""

    class Slow(Switch):
        def candidates(self, bench: Bench) -> list[Settings]:
            clock.sleep(30.0)
            return super().candidates(bench)

    found = ladder(climbing(seconds_of_two, Slow("a"), Compiled("b"), budget=700.0))
    assert [(rung.knob, rung.basis) for rung in found.rungs] == [("a", "screened"), ("b", "measured")]
    assert found.left == ()


def test_finished_rounds_behind_the_others_count_where_there_is_no_time_to_go_on(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs = (Compiled("b"), Switch("a"))

    def stop(*_: object) -> tuple[str, bool]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patching:
        patching.setattr("perfaudit.tune.climb_behind._judge", stop)
        assert climbing(seconds_of_two, *knobs, begin=begin(Path(), False)).interrupted
    shop = Shop(clock, seconds_of_two)
    found = ladder(climbing(shop, *knobs, budget=60.0, begin=begin(Path(), True)))
    assert ([rung.knob for rung in found.rungs], found.basis, found.left) == (["a", "b"], "measured", ())
    assert found.rungs[1].beside == pytest.approx((0.8,) * 3)
    assert not any("the others" in keys for keys in shop.opened)


def test_finished_rounds_behind_the_others_count_where_it_cannot_be_made_ready_again(
    climbing: Climbing, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Compiled("b")

    def stop(*_: object) -> tuple[str, bool]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patching:
        patching.setattr("perfaudit.tune.climb_behind._judge", stop)
        assert climbing(seconds_of_two, module, Switch("a"), begin=begin(Path(), False)).interrupted
    module.is_ready = False
    found = ladder(climbing(seconds_of_two, module, Switch("a"), begin=begin(Path(), True)))
    assert ([rung.knob for rung in found.rungs], found.left) == (["a", "b"], ())


class Asking(Compiled):
    def prepare(self, bench: Bench, settings: Settings) -> bool:
        bench.ask(settings, "trial_compile", timeout=222.0)
        return True


def test_what_is_raced_behind_the_others_is_made_ready_as_a_setting_of_a_training_that_runs(
    climbing: Climbing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that compiles by itself would have the time of a start."""
    shop, asked = Shop(clock, independent), list[tuple[Variant, Any]]()
    ask = shop.ask
    monkeypatch.setattr(shop, "ask", lambda variant, *told: asked.append((variant, told)) or ask(variant, *told))
    climbing(shop, Asking("b"), Switch("a"))
    ((variant, (command,)),) = [each for each in asked if each[1] and each[1][0]["do"] == "ask"]
    assert (variant.settings, bool(variant.applied), switches(variant.overlay["t.py"])["a"]) == ({"b": 1}, True, 1)
    assert (switches(variant.overlay["t.py"])["b"], command["timeout"]) == (0, 222.0)
