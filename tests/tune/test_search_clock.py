"""The clock by which a knob's settings are judged, and the order of a climb's rungs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import profile_of, survey_of
from switches import Shop as ClimbShop
from switches import Switch
from test_climb import Climbing, climbing, ladder, patched  # noqa: F401  # a fixture
from test_search import STEP, Shop, Sizes, Steps, search  # noqa: F401  # a fixture

from perfaudit.errors import NothingMeasured
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.child_subject import ChildSubject
from perfaudit.measure.clock import Deadline
from perfaudit.measure.facts import Facts, Script
from perfaudit.measure.ledger import Block, Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.measure.watch import Watch
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.tune.first_steps import build, time_phases


@pytest.mark.parametrize(
    ("budget", "opened"),
    [
        (100.0, 2.0),
        (30.1, 2.0),
        (29.9, 5.0),  # less than two starts are left then: nothing is imported for the next ones
    ],
)
def test_a_start_of_the_code_is_neither_the_import_of_torch_nor_of_what_the_next_ones_have(
    clock: FakeClock, budget: float, opened: float
) -> None:
    shop = Shop(clock, {0: 1.0}, opening=5.0)
    shop.waiting, shop.preloading = 15.0, 3.0
    profile = build(Target("t.py", {}), shop, Watch(), 10.0, Deadline(budget, clock))  # type: ignore[arg-type]  # of this file
    assert profile.seconds_to_open == pytest.approx(opened)


class Busy(Shop):
    """Others hold the cores half of the time; of it, setting 1 is spared more than it saves."""

    threads = 1

    def facts(self) -> Facts:
        usual = super().facts()
        return replace(usual, host=replace(usual.host, threads=self.threads))

    def open(self, variants: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        super().open(variants)
        return {v.key: Queued(self, int(str(v.settings.get("size", 0)))) for v in variants}


class Queued(Steps):
    def block(self, steps: int, untimed: int = 1) -> Block:
        seen = super().block(steps)
        computing = 0.5 * STEP * (0.9 if self.size else 1.0) * steps
        return Block(seen.steps, seen.wall, computing, seen.samples, queued=seen.wall - computing, phases=seen.phases)


@pytest.mark.parametrize(
    ("threads", "in_process", "trusted", "ratio"),
    [
        (1, True, "cpu", 0.9),
        (2, True, "wall", 0.7),  # the seconds of several threads do not add up to a step
        (1, False, "wall", 0.7),  # what the knob changes happens in another process
    ],
)
def test_the_clock_of_a_knob(
    search: Callable[..., Report],  # noqa: F811
    clock: FakeClock,
    threads: int,
    in_process: bool,
    trusted: str,
    ratio: float,
) -> None:
    shop = Busy(clock, {0: 1.0, 1: 0.7})
    shop.threads = threads
    report = search(shop, Sizes("sizes", [1], in_process=in_process))
    assert [(c.clock, round(c.ratio, 6)) for c in report.comparisons] == [(trusted, ratio)]
    saving = report.winners[0].saving
    assert saving is not None
    assert (saving.clock, round(saving.low, 6), round(saving.high, 6)) == (
        trusted,
        round(1 - ratio, 6),
        round(1 - ratio, 6),
    )


def test_settled_by_processor_time_a_race_ends_at_the_first_look(
    search: Callable[..., Report],  # noqa: F811
    clock: FakeClock,
) -> None:
    """On the wall the setting swings; in processor time it is clear after four generations."""

    class Swinging(Busy):
        def open(self, variants: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
            self.speeds = {0: 1.0, 1: 0.75 if len(self.opened) % 2 else 1.25}
            return super().open(variants)

    shop = Swinging(clock, {0: 1.0, 1: 1.0})
    (comparison,) = search(shop, Sizes("sizes", [1])).comparisons
    assert (comparison.clock, comparison.verdict, comparison.n) == ("cpu", "faster", 12)
    assert shop.opened == [[0, 1]] * 4


def test_rungs_are_in_the_order_of_what_the_race_says_they_gain(climbing: Climbing, clock: FakeClock) -> None:  # noqa: F811
    def speed(on: dict[str, int]) -> float:
        return (0.9 if on["a"] else 1.0) * (0.7 if on["b"] else 1.0) * (0.8 if on["c"] else 1.0)

    shop = ClimbShop(clock, speed)
    report = climbing(shop, Switch("a"), Switch("b"), Switch("c"))
    assert [(rung.knob, round(rung.ratio, 6)) for rung in ladder(report).rungs] == [("b", 0.7), ("c", 0.8), ("a", 0.9)]
    assert patched(report) == {"a": 1, "b": 1, "c": 1}
    assert shop.opened == [["as it is", "all"]] * 4  # only what is handed over is raced in fresh processes


def test_a_script_that_ends_within_the_first_steps_is_to_train_longer() -> None:
    def ask(*_: object) -> None:
        raise ChildFailed("ended", "t.py: the script ended after 9 updates of its optimizers")

    session = SimpleNamespace(
        questions=SimpleNamespace(ask=ask), clock=FakeClock(), target=Target("t.py", {}, ()), timeout=60.0
    )
    with pytest.raises(NothingMeasured, match="have it train longer, on more data or for more epochs"):
        time_phases(session, profile_of(survey_of(script=Script())), 180.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "tells_waiting", "is_asked"), [(1.0, True, True), (1.1, True, False), (1.0, False, False)]
)
def test_steps_in_one_thread_are_made_where_a_step_is_not_long_and_a_race_leaves_waiting_out(
    seconds: float, tells_waiting: bool, is_asked: bool
) -> None:
    profile = profile_of(survey_of(host={"threads": 2}, script=Script()), seconds_per_step=seconds)
    asked: list[str] = []

    def ask(key: str, variant: Variant, *commands: dict[str, Any]) -> list[Any]:
        asked.extend(command["do"] for command in commands)
        return [{}, {"steps": 4, "wall": 0.4}, {"share": 0.0}][: 1 + len(commands)]

    session = SimpleNamespace(questions=SimpleNamespace(ask=ask), clock=FakeClock())
    found = time_phases(session, profile, 180.0, tells_waiting)  # type: ignore[arg-type]  # what it asks for
    assert asked == ["block", "asleep"][: 1 + is_asked]
    assert found.only_computes is is_asked
