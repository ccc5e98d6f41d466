"""Patches screened in one running training: what takes part, what a fault does, and that the training is as it was afterwards."""

from __future__ import annotations

import contextlib
import math
import random
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from clocked_training import Training, no_twin, set_clock, user_module
from fake_clock import FakeClock

from perfaudit.errors import NoBatches, TargetError
from perfaudit.measure import own_time, screening, screening_start
from perfaudit.measure.agreement import Alone
from perfaudit.measure.entrants import BASE, CONTROL, DECIDED, FUTILE, FUTILE_QUADS, Terms
from perfaudit.measure.pace import Pace
from perfaudit.measure.preparation import Candidate, LeavesSomething
from perfaudit.measure.screening import Screening
from perfaudit.measure.screening_start import prepare_screening
from perfaudit.measure.twins import Twins
from perfaudit.training import code_variant
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.setting_variant import SettingVariant
from perfaudit.training.tensor_layout import LostWrite
from perfaudit.training.together import Together

TEXT = """
    cost = 1.0
    def forward(clock):
        clock.sleep(cost)
    def evaluate(clock):
        clock.sleep(100.0)
"""
STEP = "clock.sleep(cost)"


def begun(training: Training, candidates: list[Candidate], may_count_own: bool = False) -> Screening:
    return prepare_screening(training, candidates, Terms(0.01, 1), Twins(no_twin), may_count_own=may_count_own)


Start = Callable[..., tuple[Screening, Training]]


@pytest.fixture
def start(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """A screening of patches that replace the step's line: `start(fast="clock.sleep(0.5)")`."""
    set_clock(clock, monkeypatch)
    with user_module("user_step", TEXT, tmp_path) as module:
        path = Path(module.__file__)

        def begin(old: str = STEP, **patches: str) -> tuple[Screening, Training]:
            before = path.read_text()
            changes = [Candidate(key, {str(path): [before, before.replace(old, new)]}) for key, new in patches.items()]
            training = Training(module, clock)
            return begun(training, changes), training

        yield begin


@pytest.mark.parametrize("own", [False, True], ids=["all seconds", "without waiting for cores"])
def test_waiting_for_cores_is_left_out_where_the_training_only_computes(
    start: Start, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps wait three times as long as they compute, with the patch and without, and the patch spares half of the computing."""
    queue = [0.0]

    def queued() -> float:
        return queue[0]

    _, training = start(half="clock.sleep(cost / 2)")
    computing = types.SimpleNamespace(seconds=0.0)
    forward = training.module.forward

    class Machine:
        """A clock on the wall beside which the clocks of threads run slower: three seconds of waiting for a core in each step."""

        def sleep(self, seconds: float) -> None:
            computing.seconds += seconds
            queue[0] += 3.0
            training_clock.sleep(seconds + 3.0)

    training_clock, training.clock = training.clock, Machine()  # type: ignore[assignment]
    clocks = types.SimpleNamespace(
        perf_counter=training_clock.now, process_time=lambda: computing.seconds, thread_time=lambda: computing.seconds
    )
    monkeypatch.setattr(own_time, "time", clocks)
    monkeypatch.setattr(own_time, "queued_seconds", queued)
    path = Path(forward.__code__.co_filename)
    before = path.read_text()
    change = Candidate("half", {str(path): [before, before.replace(STEP, "clock.sleep(cost / 2)")]})
    monkeypatch.setattr(Training, "whole_step", lambda self, fixed=False: self.module.forward(self.clock))
    state = begun(training, [change], may_count_own=own).run(1e9)
    assert state["counts_own"] is own
    ratio = math.exp(sum(state["entrants"]["half"]["log_ratios"]) / len(state["entrants"]["half"]["log_ratios"]))
    assert ratio == pytest.approx(0.5 if own else 3.5 / 4.0)
    base = state["base"]
    assert base["counted"] / base["steps"] == pytest.approx(1.0 if own else 4.0)
    assert base["wall"] / base["steps"] == pytest.approx(4.0)
    assert base["queued"] / base["steps"] == pytest.approx(3.0)


def test_the_ratio_of_each_patch_and_the_control(start: Start) -> None:
    race, _ = start(half="clock.sleep(cost / 2)", most="clock.sleep(cost * 0.9)", same="clock.sleep(cost * 1.0)")
    state = race.run(1e9)
    left = {key: entrant["left"] for key, entrant in state["entrants"].items()}
    assert left == {"half": DECIDED, "most": DECIDED, "same": FUTILE, CONTROL: ""}
    found = {key: entrant["interval"][0] for key, entrant in state["entrants"].items() if entrant["interval"]}
    assert found == {"half": pytest.approx(0.5), "most": pytest.approx(0.9), CONTROL: pytest.approx(1.0)}
    assert state["entrants"]["same"]["log_ratios"] == pytest.approx([0.0] * FUTILE_QUADS[0])
    assert (state["ended"], state["refused"], state["block"]) == (True, {}, 1)


def test_a_setting_beside_a_patch(start: Start) -> None:
    race, training = start(half="clock.sleep(cost / 2)")

    @contextlib.contextmanager
    def cheaper() -> Iterator[None]:
        before, training.module.cost = training.module.cost, 0.8
        yield
        training.module.cost = before

    race = begun(training, [Candidate("low", settings=[SettingVariant(cheaper)]), Candidate("none", way="twin")])
    state = race.run(1e9)
    assert state["entrants"]["low"]["interval"][0] == pytest.approx(0.8)
    assert (state["refused"], training.module.cost) == ({"none": "no twin here"}, 1.0)
    assert state["ways"] == {"low": "setting", CONTROL: "code"}


def test_a_race_goes_on_where_it_stopped(start: Start) -> None:
    race, training = start(half="clock.sleep(cost / 2)")
    mine = training.module.forward.__code__
    seen = []
    while not (state := race.run(3.0))["ended"]:
        assert training.module.forward.__code__ is mine  # between two requests the training is as it was
        seen.append(len(state["entrants"]["half"]["log_ratios"]))
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert state["entrants"]["half"]["left"] == "decided"


def test_the_end_of_time_judges_what_there_is(start: Start) -> None:
    race, _ = start(near="clock.sleep(cost * 0.99)")
    assert race.run(40.0)["entrants"]["near"]["interval"] is None
    for _ in range(20):
        race.run(5.0)
    assert race.run(0.0, last=True)["entrants"]["near"]["interval"][0] == pytest.approx(0.99, abs=0.005)


def test_a_patch_that_raises_at_once_is_refused(start: Start) -> None:
    race, training = start(bad="raise ValueError('no')", half="clock.sleep(cost / 2)")
    assert list(race.prepared.refused) == ["bad"]
    assert race.prepared.refused["bad"].startswith("with it, a step raises ValueError: no")
    assert race.run(1e9)["entrants"].keys() == {"half", CONTROL}
    training.whole_step()


def test_a_patch_that_raises_later_leaves_and_the_training_goes_on(start: Start) -> None:
    race, training = start(bad="clock.sleep(cost if clock.now() < 200 else 1 / 0)", near="clock.sleep(cost * 0.9)")
    mine = training.module.forward.__code__
    state = race.run(1e9)
    assert state["entrants"]["bad"]["left"].startswith("with it, a step raises ZeroDivisionError")
    assert state["entrants"]["near"]["interval"] is not None
    assert training.module.forward.__code__ is mine


def test_a_setting_that_cannot_be_put_in_place_later_leaves_and_the_training_goes_on(start: Start) -> None:
    _, training = start(half="clock.sleep(cost / 2)")
    entered = []

    @contextlib.contextmanager
    def worn_out() -> Iterator[None]:
        entered.append(1)
        if len(entered) > 5:
            raise RuntimeError("no more of these")
        yield

    race = begun(training, [Candidate("bad", settings=[SettingVariant(worn_out)])])
    state = race.run(1e9)
    assert state["entrants"]["bad"]["left"].startswith("with it, a step raises RuntimeError: no more of these")
    training.whole_step()


@pytest.mark.parametrize(
    ("times", "where"),
    [(1, "before the race"), (3, "in its first steps"), (6, "later")],
)
def test_what_cannot_be_taken_back_ends_the_process_and_is_to_blame(start: Start, times: int, where: str) -> None:
    _, training = start(half="clock.sleep(cost / 2)")
    left: list[str] = []

    @contextlib.contextmanager
    def sticking() -> Iterator[None]:
        training.module.cost = 0.5
        yield
        left.append(where)
        if len(left) >= times:
            raise RuntimeError("it stays")
        training.module.cost = 1.0

    marks: list[str] = []
    candidates = [
        Candidate("sticks", settings=[SettingVariant(sticking)]),
        patch_of(training, "half", "clock.sleep(0.5)"),
    ]
    with pytest.raises(LeavesSomething, match="it cannot be taken back: RuntimeError: it stays"):
        prepare_screening(training, candidates, Terms(0.01, 1), Twins(no_twin), mark=marks.append).run(1e9)
    assert marks[-1] == "sticks"


def test_where_one_of_several_cannot_be_taken_back_the_others_are() -> None:
    seen: list[str] = []

    def part(name: str) -> SettingVariant:
        @contextlib.contextmanager
        def inside() -> Iterator[None]:
            yield
            seen.append(name)
            if name == "b":
                raise RuntimeError(name)

        return SettingVariant(inside)

    together = Together([part("a"), part("b"), part("c")])
    together.enter()
    with pytest.raises(RuntimeError, match="b"):
        together.leave()
    assert seen == ["c", "b", "a"]


def test_a_base_that_raises_is_a_fault_of_the_training(start: Start) -> None:
    race, training = start(half="clock.sleep(cost / 2)")
    mine = training.module.forward.__code__
    training.synchronize = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(ZeroDivisionError):
        race.run(1e9)
    assert training.module.forward.__code__ is mine


def raising_at(training: Training, *steps: int, always_from: int = 1 << 30) -> None:
    """Let these steps of a training raise, counted from now on, and all from one on."""
    step, begins = training.whole_step, training.steps

    def raise_at_times(fixed: bool = False) -> None:
        step(fixed)
        if training.steps - begins in steps or training.steps - begins >= always_from:
            raise RuntimeError("bad sample in shard 7")

    training.whole_step = raise_at_times  # type: ignore[method-assign]


def test_a_step_that_raises_now_and_then_is_nobodys_fault(start: Start) -> None:
    """It is not counted; the race goes on, and finds what it finds without."""
    race, training = start(half="clock.sleep(cost / 2)")
    raising_at(training, *range(7, 1000, 11))
    state = race.run(1e9)
    assert (state["trouble"], state["ended"]) == ("", True)
    assert state["entrants"]["half"]["left"] == "decided"
    assert state["entrants"]["half"]["interval"][0] == pytest.approx(0.5)
    assert state["raised"][0] > 1
    assert state["raised"][1].startswith("RuntimeError: bad sample in shard 7")


def test_a_training_that_ends_is_trouble_and_judges_nobody(start: Start) -> None:
    """Whoever asked may build it again, where the race goes on with the quads that there are."""
    race, training = start(half="clock.sleep(0.8 * cost)")
    raising_at(training, always_from=50)
    state = race.run(1e9)
    assert state["trouble"].startswith("a step raises RuntimeError: bad sample in shard 7")
    assert (state["entrants"]["half"]["left"], state["entrants"]["half"]["interval"]) == ("", None)
    assert len(state["entrants"]["half"]["log_ratios"]) in range(5, 8)  # it has not come to its first look
    assert race.run(0.0, last=1.0)["entrants"]["half"]["interval"] is not None


def test_a_patch_of_what_no_step_runs_is_refused(start: Start) -> None:
    race, _ = start("clock.sleep(100.0)", other="clock.sleep(1.0)")
    assert race.prepared.refused == {"other": "a step does not run evaluate, which the patch changes"}
    assert race.run(1e9)["ended"]


def test_a_patch_of_what_ran_on_import_is_refused(start: Start) -> None:
    race, _ = start("cost = 1.0", other="cost = 2.0")
    assert race.prepared.refused == {"other": "the patch changes line 2, which ran on import"}


def test_a_patch_that_changes_no_code_is_refused(start: Start) -> None:
    race, _ = start(other="clock.sleep(cost)  # as before")
    assert race.prepared.refused == {"other": "the patch changes no function"}


@pytest.mark.parametrize(
    ("cost", "runs_behind", "block"),
    [(1.0, False, 1), (0.001, False, 5), (1.0, True, 5), (0.002, True, 25), (30.0, True, 5)],
)
def test_how_many_steps_a_block_has(start: Start, clock: FakeClock, cost: float, runs_behind: bool, block: int) -> None:
    _, training = start(half="clock.sleep(cost / 2)")
    training.module.cost = cost
    training.steps = 0
    assert screening_start._block_steps(training, runs_behind) == (block, 1)


@pytest.mark.parametrize("runs_behind", [False, True])
def test_no_step_is_made_for_an_order_that_is_known(start: Start, runs_behind: bool) -> None:
    _, training = start(half="clock.sleep(cost / 2)")
    before = training.steps
    assert screening_start._block_steps(training, runs_behind, period=3)[1] == 3
    assert training.steps - before == screening_start.TIMED_STEPS


@pytest.mark.parametrize(("runs_behind", "block"), [(False, 2), (True, 6)])
def test_a_block_has_whole_rounds_of_steps_that_take_turns(
    start: Start, monkeypatch: pytest.MonkeyPatch, runs_behind: bool, block: int
) -> None:
    _, training = start(half="clock.sleep(cost / 2)")
    usual = training.whole_step

    def whole_step(fixed: bool = False) -> None:
        training.module.cost = 0.02 + 0.02 * (training.steps % 2)
        usual(fixed)

    monkeypatch.setattr(training, "whole_step", whole_step)
    least, period = screening_start._block_steps(training, runs_behind)
    assert screening_start._pace(training.loader, least, False, False, period).block == block


# ---- twins ---------------------------------------------------------------------------------------------------------------


class FakeTwin:
    """A training of its own, whose step takes `cost`."""

    def __init__(self, first: Training, cost: float, fault: Exception | None = None) -> None:
        self.log: list[str] = []

        def forward(clock: FakeClock) -> None:
            assert self.log[-1] == "enter"  # steps of a twin are made while it is entered, and no others
            if fault is not None:
                raise fault
            clock.sleep(cost)

        self.training = Training(types.SimpleNamespace(forward=forward), first.clock)
        self.modules: dict[str, types.ModuleType] = {}

    def enter(self) -> None:
        self.log.append("enter")

    def leave(self) -> None:
        self.log.append("leave")

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        work()
        return []

    def close(self) -> None:
        self.log.append("close")


class Builder:
    """Builds twins: `costs` by the text of "f.py", a message where that one is refused; no text, no change."""

    def __init__(self, training: Training, **costs: float | str | Exception) -> None:
        self.training, self.costs = training, costs
        self.asked: list[str] = []
        self.made: dict[str, FakeTwin] = {}

    def __call__(self, texts: Mapping[str, str]) -> FakeTwin:
        text = texts.get("f.py", "as it is")
        self.asked.append(text)
        cost = self.costs.get(text, 1.0)
        if isinstance(cost, str):
            raise NotSwappable(cost)
        fault = cost if isinstance(cost, Exception) else None
        self.made[text] = FakeTwin(self.training, 0.0 if isinstance(cost, Exception) else cost, fault)
        return self.made[text]


def twin_of(text: str) -> Candidate:
    return Candidate(text, whole={"f.py": text}, way="twin")


def patch_of(training: Training, key: str, new: str, whole: Mapping[str, str] | None = None) -> Candidate:
    before = Path(training.module.__file__).read_text()
    return Candidate(key, {training.module.__file__: [before, before.replace(STEP, new)]}, whole=whole or {})


def test_a_twin_makes_its_own_steps_and_the_control_is_one(start: Start) -> None:
    _, training = start()
    build = Builder(training, fast=0.5)
    race = prepare_screening(training, [twin_of("fast")], Terms(0.01, 1), Twins(build))
    state = race.run(1e9)
    found = {key: entrant["interval"][0] for key, entrant in state["entrants"].items()}
    assert found == {"fast": pytest.approx(0.5), CONTROL: pytest.approx(1.0)}
    assert state["ways"] == {"fast": "twin", CONTROL: "twin"}
    assert race.prepared.variants[CONTROL] is build.made["as it is"]
    assert build.asked == ["fast", "as it is"]
    assert all(twin.log[-1] == "leave" for twin in build.made.values())


def test_code_is_swapped_before_any_twin_is_built(start: Start) -> None:
    """What a twin compiles would keep code from being swapped."""
    _, training = start()
    build = Builder(training, fast=0.5)
    seen: list[str] = []
    candidates = [twin_of("fast"), patch_of(training, "half", "clock.sleep(cost / 2)")]
    race = prepare_screening(training, candidates, Terms(0.01, 1), Twins(build), mark=seen.append)
    assert seen == ["half", "fast", ""]
    assert race.prepared.ways == {"half": "code", "fast": "twin", CONTROL: "twin"}


def test_twins_are_shared_by_the_stages(start: Start) -> None:
    _, training = start()
    build = Builder(training, fast=0.5, faster=0.25)
    twins = Twins(build)
    first = prepare_screening(training, [twin_of("fast"), twin_of("faster")], Terms(0.01, 1), twins)
    second = prepare_screening(training, [twin_of("faster"), twin_of("fast")], Terms(0.01, 1), twins)
    assert build.asked == ["fast", "faster", "as it is"]
    assert {
        key: first.prepared.variants[key] is second.prepared.variants[key] for key in first.prepared.variants
    } == dict.fromkeys(("fast", "faster", CONTROL), True)
    twins.close()
    assert [twin.log[-1] for twin in build.made.values()] == ["close"] * 3


@pytest.mark.parametrize(
    ("old", "new", "costs", "way", "reason", "asked"),
    [
        ("cost = 1.0", "cost = 0.5", {}, "twin", "", ["whole", "as it is"]),
        (
            "cost = 1.0", "cost = 0.5", {"whole": "memory does not hold it"}, "",
            "the patch changes line 2, which ran on import; memory does not hold it", ["whole"],
        ),
        (STEP, "clock.sleep(cost / 2)", {}, "code", "", []),
        (STEP, "raise ValueError('no')", {}, "", "with it, a step raises ValueError: no", []),  # it would in a twin too
        ("clock.sleep(100.0)", "clock.sleep(1.0)", {}, "twin", "", ["whole", "as it is"]),  # which no step runs
    ],
)  # fmt: skip
def test_what_cannot_be_swapped_in_falls_back_on_a_twin(
    start: Start, old: str, new: str, costs: dict[str, str], way: str, reason: str, asked: list[str]
) -> None:
    _, training = start()
    build = Builder(training, **costs)
    before = Path(training.module.__file__).read_text()
    patch = Candidate("it", {training.module.__file__: [before, before.replace(old, new)]}, whole={"f.py": "whole"})
    race = prepare_screening(training, [patch], Terms(0.01, 1), Twins(build))
    assert race.prepared.ways.get("it", "") == way
    assert race.prepared.refused.get("it", "").partition(" (")[0].startswith(reason)
    assert bool(race.prepared.refused) == bool(reason)
    assert build.asked == asked


def test_without_memory_for_another_twin_the_control_is_swapped_in(start: Start) -> None:
    _, training = start()
    build = Builder(training, fast=0.5, **{"as it is": "memory does not hold it"})
    race = prepare_screening(
        training, [twin_of("fast"), patch_of(training, "half", "clock.sleep(cost / 2)")], Terms(0.01, 1), Twins(build)
    )
    assert (race.prepared.refused, race.prepared.ways[CONTROL]) == ({}, "code")
    control = race.prepared.variants[CONTROL]
    assert isinstance(control, code_variant.CodeVariant)
    assert [swap.function for swap in control.swaps] == [training.module.forward]
    state = race.run(1e9)
    assert state["entrants"][CONTROL]["interval"][0] == pytest.approx(1.0)


def test_a_twin_with_which_a_step_raises_is_refused_and_let_go(start: Start) -> None:
    _, training = start()
    build = Builder(training, bad=MemoryError("no more"), fast=0.5)
    twins = Twins(build)
    race = prepare_screening(training, [twin_of("bad"), twin_of("fast")], Terms(0.01, 1), twins)
    assert list(race.prepared.refused) == ["bad"]
    assert race.prepared.refused["bad"].startswith("with it, a step raises MemoryError: no more")
    assert build.made["bad"].log == ["enter", "leave", "close"]
    assert twins.training_of(build.made["bad"]) is None
    assert race.run(1e9)["entrants"].keys() == {"fast", CONTROL}


def test_a_twin_that_raises_later_leaves_the_race(start: Start, clock: FakeClock) -> None:
    _, training = start()
    build = Builder(training, bad=0.9, fast=0.5)
    race = prepare_screening(training, [twin_of("bad"), twin_of("fast")], Terms(0.01, 1), Twins(build))
    race.run(10.0)
    build.made["bad"].training.module.forward = lambda clock: [][1]
    state = race.run(1e9)
    assert state["entrants"]["bad"]["left"].startswith("with it, a step raises IndexError")
    assert state["entrants"]["fast"]["left"] == DECIDED
    assert build.made["bad"].log[-1] == "leave"


def test_another_batch_size_counts_by_the_sample(start: Start) -> None:
    _, training = start()
    build = Builder(training, double=1.5)
    training.loader.batch_size = 8
    candidates = [twin_of("double")]
    twins = Twins(build)
    twins.of({"f.py": "double"}).training.loader.batch_size = 16
    twins.of({}).training.loader.batch_size = 8
    state = prepare_screening(training, candidates, Terms(0.01, 1), twins).run(1e9)
    assert state["entrants"]["double"]["interval"][0] == pytest.approx(0.75)


# ---- another base, marks -------------------------------------------------------------------------------------------------


def test_all_together_as_the_base(start: Start) -> None:
    """Ratios are of the base over what lacks a part of it; the training as it is takes part, and the control is the base."""
    _, training = start()
    candidates = [
        patch_of(training, "all", "clock.sleep(cost / 4)"),
        patch_of(training, "without a", "clock.sleep(cost / 2)"),
        patch_of(training, "without b", "clock.sleep(cost / 4 * 0.9)"),
    ]
    race = prepare_screening(training, candidates, Terms(0.01, 1, "all"), Twins(no_twin))
    assert race.prepared.variants[CONTROL] is race.prepared.variants["all"]
    state = race.run(1e9)
    found = {key: entrant["interval"][0] for key, entrant in state["entrants"].items()}
    assert found == {
        BASE: pytest.approx(0.25), "without a": pytest.approx(0.5), "without b": pytest.approx(1 / 0.9),
        CONTROL: pytest.approx(1.0),
    }  # fmt: skip
    assert all(entrant["left"] == DECIDED for key, entrant in state["entrants"].items() if key != CONTROL)
    assert state["base"]["wall"] / state["base"]["steps"] == pytest.approx(0.25)


def test_a_base_that_cannot_be_put_in_place_ends_the_race(start: Start) -> None:
    _, training = start()
    candidates = [patch_of(training, "all", "raise ValueError('no')"), patch_of(training, "a", "clock.sleep(0.5)")]
    with pytest.raises(NotSwappable, match="a step raises ValueError: no"):
        prepare_screening(training, candidates, Terms(0.01, 1, "all"), Twins(no_twin))


def test_a_base_with_which_a_step_raises_is_a_fault_of_the_race(start: Start) -> None:
    _, training = start()
    mine = training.module.forward.__code__
    candidates = [patch_of(training, "all", "clock.sleep(cost / 2 if clock.now() < 10 else 1 / 0)")]
    race = prepare_screening(training, candidates, Terms(0.01, 1, "all"), Twins(no_twin))
    with pytest.raises(ZeroDivisionError):
        race.run(1e9)
    assert training.module.forward.__code__ is mine


def test_the_mark_tells_what_is_in_place_at_every_step(start: Start) -> None:
    """For those who find this process dead: no step is made under another key than that of what it runs."""
    _, training = start()
    build = Builder(training, fast=0.5)
    now = [""]
    seen: set[tuple[str, bool, bool]] = set()
    mine, clock = training.module.forward.__code__, training.clock
    advance = clock.sleep

    def sleep(seconds: float) -> None:
        swapped, twin = training.module.forward.__code__ is not mine, build.made.get("fast")
        seen.add((now[0], swapped, twin is not None and bool(twin.log) and twin.log[-1] == "enter"))
        advance(seconds)

    clock.sleep = sleep  # type: ignore[method-assign]
    candidates = [patch_of(training, "half", "clock.sleep(cost / 2)"), twin_of("fast")]

    def mark(key: str) -> None:
        now[0] = key

    race = prepare_screening(training, candidates, Terms(0.01, 1), Twins(build), mark=mark)
    assert (now, seen) == ([""], {("", False, False), ("half", True, False), ("fast", False, True)})
    race.run(1e9)
    assert now == [""]
    assert seen == {("", False, False), ("half", True, False), ("fast", False, True), (CONTROL, False, False)}


def test_a_mark_stays_where_a_step_does_not_return(start: Start) -> None:
    _, training = start()
    seen: list[str] = []
    candidates = [
        patch_of(training, "half", "clock.sleep(cost / 2)"),
        patch_of(training, "dies", "raise KeyboardInterrupt"),
    ]
    with pytest.raises(KeyboardInterrupt):
        prepare_screening(training, candidates, Terms(0.01, 1), Twins(no_twin), mark=seen.append)
    assert seen == ["half", "dies"]


# ---- other loaders --------------------------------------------------------------------------------------------------------


class Loader:
    """In the place of the training's loader: another number of workers, and steps that cost something else."""

    def __init__(self, training: Training, cost: float, **attributes: int) -> None:
        self.training, self.cost, self.entered = training, cost, 0
        self.loader = types.SimpleNamespace(**attributes)
        self.before: tuple[Any, float] | None = None

    def enter(self) -> None:
        self.entered += 1
        self.before = self.training.loader, self.training.module.cost
        self.training.loader, self.training.module.cost = self.loader, self.cost

    def leave(self) -> None:
        if self.before is not None:
            self.training.loader, self.training.module.cost = self.before
            self.before = None

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        work()
        return []


class Turns(Twins):
    """Notes whose workers were let go on."""

    def __init__(self) -> None:
        super().__init__(no_twin)
        self.given: list[Any] = []

    def give_turn_to(self, variant: Any, loader: Any = None) -> None:
        self.given.append(loader)


def test_a_loader_is_raced_in_whole_rounds_of_its_workers(start: Start) -> None:
    _, training = start()
    own = training.loader
    three = Loader(training, 0.7, num_workers=3, prefetch_factor=2)
    race = prepare_screening(training, [Candidate("three", loader=three)], Terms(0.01, 1), turns := Turns())
    assert (race.prepared.ways["three"], race.race.paces["three"]) == ("loader", Pace(6, skipped=3, warm_up=8))
    assert race.race.paces[BASE] == Pace(2)
    assert turns.given == [three, None]  # its workers start in its own turn
    state = race.run(1e9)
    assert state["entrants"]["three"]["interval"][0] == pytest.approx(0.7)
    assert set(turns.given) == {three, None}
    assert (training.loader, training.module.cost, turns.given[-1]) == (own, 1.0, None)
    assert three.entered > 8


@pytest.mark.parametrize(("workers", "second", "base", "own"), [(1, 4, 2, 1), (2, 4, 2, 2), (4, 4, 4, 4), (8, 8, 8, 8)])
def test_blocks_with_a_second_loader_are_longer(start: Start, workers: int, second: int, base: int, own: int) -> None:
    """What its workers have ready when its turn ends is chance; the training's own loader goes on from block to block."""
    _, training = start()
    training.loader = types.SimpleNamespace(num_workers=workers, prefetch_factor=2, batch_size=1)
    other = Loader(training, 0.5, num_workers=workers, prefetch_factor=2)
    for rivals, blocks in ((False, (second, base)), (True, (own, own))):  # the fastest of rivals is measured afterwards
        terms = Terms(0.01, 1, rivals=rivals)
        paces = prepare_screening(training, [Candidate("other", loader=other)], terms, Turns()).race.paces
        assert (paces["other"].block, paces[BASE].block) == blocks
        assert paces[CONTROL].block == own


def test_seconds_with_a_loader_of_another_batch_size_are_those_of_the_own(start: Start) -> None:
    _, training = start()
    training.loader = types.SimpleNamespace(batch_size=4)
    double = Loader(training, 1.5, batch_size=8)
    state = prepare_screening(training, [Candidate("double", loader=double)], Terms(0.01, 1), Turns()).run(1e9)
    assert state["entrants"]["double"]["interval"][0] == pytest.approx(0.75)


def test_a_loader_that_cannot_be_built_falls_back_on_a_twin(start: Start) -> None:
    _, training = start()
    refused = Loader(training, 1.0)

    def enter() -> None:
        raise NotSwappable("the same loader each time")

    refused.enter = enter  # type: ignore[method-assign]
    twin = Candidate("refused", loader=refused, whole={"f.py": "x"})
    race = prepare_screening(training, [twin], Terms(0.01, 1), Twins(no_twin))
    assert race.prepared.refused == {"refused": "the same loader each time; no twin here"}


class Script(Training):
    """A training in a loop of its own: after a step that raises, or its last one, it makes none any more."""

    is_script = True
    last = 10**9

    def whole_step(self, fixed: bool = False) -> None:
        if self.has_ended or self.steps >= self.last:
            self.has_ended = True
            raise NoBatches("the script ended")
        try:
            super().whole_step()
        except (ValueError, TargetError):
            self.has_ended = True
            raise


def script_with(start: Start, after: str, last: int) -> tuple[Screening, Script]:
    """A script of so many steps, raced with a patch."""
    _, training = start(other=after)
    script = Script(training.module, training.clock)
    script.last = last
    path = str(training.module.__file__)
    before = Path(path).read_text()
    return begun(script, [Candidate("other", {path: [before, before.replace(STEP, after)]})]), script


def test_a_script_that_ends_while_it_is_raced_blames_nobody(start: Start) -> None:
    race, _ = script_with(start, "clock.sleep(0.8 * cost)", 60)
    state = race.run(1e9)
    assert state["trouble"] == "the script ended"
    assert not any(entrant["left"].startswith("with it") for entrant in state["entrants"].values())


def test_a_script_that_ends_while_a_candidate_is_tried_blames_nobody(start: Start) -> None:
    marks: list[str] = []
    with pytest.raises(NoBatches):
        _, training = start(other="clock.sleep(cost / 2)")
        script = Script(training.module, training.clock)
        script.last = 2
        path = str(training.module.__file__)
        before = Path(path).read_text()
        other = Candidate("other", {path: [before, before.replace(STEP, "clock.sleep(cost / 2)")]})
        prepare_screening(script, [other], Terms(0.01, 1), Twins(no_twin), mark=marks.append)
    assert marks == ["other", ""]


def test_a_candidate_with_which_a_script_raises_is_to_blame_for_its_end(start: Start) -> None:
    raises = "clock.sleep(cost)\n    if clock.now() > 40: raise ValueError('no')"
    race, script = script_with(start, raises, 10**9)
    state = race.run(1e9)
    assert script.has_ended
    assert state["entrants"]["other"]["left"].startswith("with it, a step raises ValueError: no")
    assert state["trouble"].startswith("a step raises ValueError")


def test_a_candidate_with_which_a_script_leaves_with_a_fault_is_to_blame_for_its_end(start: Start) -> None:
    left = "train.py: the script left with code 1 after 40 updates of its optimizers"
    leave = f"from perfaudit.errors import TargetError; raise TargetError('{left}')"
    race, script = script_with(start, f"clock.sleep(cost)\n    if clock.now() > 40: {leave}", 10**9)
    state = race.run(1e9)
    assert (script.has_ended, state["trouble"]) == (True, left)
    assert state["entrants"]["other"]["left"] == f"with it, {left}"
    with pytest.raises(
        LeavesSomething, match=r"left with code 1 after 40 updates of its optimizers; that ended the script"
    ):
        script_with(start, f"clock.sleep(cost); {leave}", 10**9)


def test_a_step_that_loses_what_it_writes_has_the_training_built_anew(start: Start) -> None:
    _, training = start(other="clock.sleep(cost)")

    @contextlib.contextmanager
    def losing() -> Iterator[None]:
        yield
        raise LostWrite("a step writes through a `view`, which this layout breaks") from RuntimeError("no view")

    candidate = Candidate("layout", settings=[SettingVariant(contextlib.nullcontext, losing)])
    with pytest.raises(LeavesSomething, match="with it, a step writes through a `view`, which this layout breaks"):
        prepare_screening(training, [candidate], Terms(0.01, 1), Twins(no_twin))


def test_a_setting_that_lives_on_in_what_a_script_keeps_is_to_blame_for_its_next_step(start: Start) -> None:
    """A hidden state of a coarser type, say, which the script's own step cannot take."""
    _, training = start(other="clock.sleep(cost)")
    marks: list[str] = []

    class Keeping(Script):
        kept, kind = "float", "float"

        def whole_step(self, fixed: bool = False) -> None:
            if self.kept != self.kind == "float":
                self.has_ended = True
                raise ValueError("two types")
            self.kept = self.kind
            super().whole_step()

    script = Keeping(training.module, training.clock)

    @contextlib.contextmanager
    def coarser() -> Iterator[None]:
        script.kind = "half"
        yield
        script.kind = "float"

    low = Candidate("low", settings=[SettingVariant(coarser)])
    with pytest.raises(LeavesSomething, match="after a step with it, a step of your code raises ValueError: two types"):
        prepare_screening(script, [low], Terms(0.01, 1), Twins(no_twin), mark=marks.append)
    assert marks == ["low"]


# ---- steps of unequal time -----------------------------------------------------------------------------------------------


class Uneven(Training):
    """A training of which every so many steps one takes longer (an evaluation, a checkpoint), or less (a short last batch)."""

    def __init__(self, module: Any, clock: FakeClock, every: int, more: float, begins: int) -> None:
        super().__init__(module, clock)
        self.every, self.more, self.begins = every, more, begins
        self.noise = random.Random(begins)

    def whole_step(self, fixed: bool = False) -> None:
        self.steps += 1
        self.module.cost = math.exp(self.noise.gauss(0.0, 0.02))
        self.module.cost += self.more if (self.begins + self.steps) % self.every == 0 else 0.0
        self.module.forward(self.clock)


@pytest.mark.parametrize("every", [4, 5, 6, 9, 12, 30])
@pytest.mark.parametrize("more", [9.0, -0.7])
def test_identical_code_is_not_told_apart_where_every_so_many_steps_one_takes_another_time(
    start: Start, clock: FakeClock, every: int, more: float
) -> None:
    """Quads of three blocks: what comes every sixth step must not always fall on the candidate's side."""
    _, training = start()
    path = training.module.__file__
    text = Path(path).read_text()
    change = {path: [text, text.replace(STEP, "clock.sleep(cost * 1.0)")]}
    wrong = seen = 0
    for seed in range(12):
        uneven = Uneven(training.module, clock, every, more, begins=seed)
        race = prepare_screening(uneven, [Candidate("same", change)], Terms(None, seed), Twins(no_twin))
        race.run(400.0)
        state = race.run(0.0, last=True)
        for entrant in state["entrants"].values():
            if entrant["interval"]:
                seen += 1
                wrong += not entrant["interval"][1] <= 1 <= entrant["interval"][2]
    assert seen == 24
    assert wrong <= 5  # 13 to 23 of them for 6, 9 and 12, where nothing breaks the rhythm


def test_a_race_says_how_long_its_longest_block_took(start: Start, clock: FakeClock) -> None:
    _, training = start()
    uneven = Uneven(training.module, clock, 6, 9.0, begins=0)
    race = prepare_screening(uneven, [], Terms(None, 1), Twins(no_twin))
    assert race.run(400.0)["longest"] == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize(("most", "low", "high"), [(0.03, 0.0, 0.09), (1.0, 0.1, 0.5)])
def test_steps_that_only_break_a_rhythm_take_a_small_share_of_a_race(
    start: Start, monkeypatch: pytest.MonkeyPatch, most: float, low: float, high: float
) -> None:
    """Beside one candidate, each second block of the base would have such steps before it."""
    monkeypatch.setattr(screening, "MOST_LOST", most)
    _, training = start()
    races = [prepare_screening(training, [], Terms(None, seed), Twins(no_twin)) for seed in range(12)]
    for race in races:
        race.run(300.0)
    assert low < sum(race._lost for race in races) / sum(race._seconds for race in races) < high


class OtherRank(Alone):
    """The first of two ranks. The other refuses with these words what comes at the n-th time that one may be refused; a step
    takes there as long as `seconds` says.
    """

    here = " on rank 0"

    def __init__(self, refusal: str = "", at: int = 0, seconds: float = 0.0) -> None:
        self.words, self.at, self.seconds, self.asked = refusal, at, seconds, 0

    def slowest(self, seconds: float) -> float:
        return max(seconds, self.seconds) if seconds else seconds  # of beginning an epoch, none

    def refusal(self, why: str) -> str:
        self.asked += 1
        return why or (self.words if self.asked == self.at else "")


def beside(other: OtherRank, training: Training) -> Screening:
    """A screening of a patch that makes a step half as long, with another rank."""
    path = Path(training.module.__file__)
    before = path.read_text()
    fast = Candidate("fast", {str(path): [before, before.replace(STEP, "clock.sleep(0.5)")]})
    return prepare_screening(training, [fast], Terms(0.01, 1), Twins(no_twin), agreement=other)  # type: ignore[arg-type]  # a fake


@pytest.mark.parametrize("at", [1, 2, 3], ids=["compiled", "entered", "run"])
def test_a_candidate_that_another_rank_refuses_is_refused_and_left(start: Start, clock: FakeClock, at: int) -> None:
    _, training = start()
    raced = beside(OtherRank("it cannot be done on rank 1", at), training)
    assert "it cannot be done on rank 1" in raced.prepared.refused["fast"]
    now = clock.now()
    training.module.forward(clock)
    assert clock.now() - now == 1.0  # the patch is not in place


def test_a_candidate_that_another_rank_cannot_enter_later_leaves_and_the_training_goes_on(start: Start) -> None:
    _, training = start()
    other = OtherRank("with it, a step raises OSError on rank 1")
    raced = beside(other, training)
    raced.mark = lambda key: setattr(other, "at", other.asked + 1) if key == "fast" else None
    state = raced.run(2000.0)
    assert state["entrants"]["fast"]["left"] == "with it, a step raises OSError on rank 1"
    assert state["trouble"] == ""
    now = training.clock.now()
    training.module.forward(training.clock)
    assert training.clock.now() - now == 1.0  # the patch is not in place


def test_times_are_those_of_the_slowest_rank(start: Start) -> None:
    """Half as long here, as long as ever on the other rank: nothing is gained."""
    _, training = start()
    raced = beside(OtherRank(seconds=1.0), training)
    seconds = raced.run(300.0)["entrants"]["fast"]["seconds"]
    assert min(seconds) == 1.0


def test_rivals_lose_no_steps_to_a_rhythm_and_have_a_base_of_one_step(start: Start) -> None:
    """The fastest of them is measured afterwards; a base that waits for its data takes most of the time of the race."""
    _, training = start()
    many = Loader(training, 0.5, num_workers=12, prefetch_factor=2)
    lost = {}
    for rivals in (True, False):
        races = [
            prepare_screening(training, [Candidate("many", loader=many)], Terms(0.01, seed, rivals=rivals), Turns())
            for seed in range(12)
        ]
        for race in races:
            race.run(5000.0)
            assert race.race.entrants["many"].log_ratios
            assert race.race.paces[CONTROL].block == 1
        assert {race.race.paces[BASE].block for race in races} == ({1} if rivals else {2})
        lost[rivals] = sum(race._lost for race in races)
    assert lost[True] == 0 < lost[False]
