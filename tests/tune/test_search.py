"""The search as a whole, with trainings that take exactly as long as told: what is tried, raced, taken, and in what time."""

from __future__ import annotations

import copy
import math
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import facts
from switches import Asked
from switches import Engine as SwitchEngine

from perfaudit.knobs import Bench, Knob, Setup, Survey, Told
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.child_subject import ChildSubject
from perfaudit.measure.entrants import BASE, CONTROL, Terms
from perfaudit.measure.facts import Facts
from perfaudit.measure.facts import to_json as facts_json
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Block, Generation, Variant, from_json, to_json
from perfaudit.measure.race import Race, Turn
from perfaudit.measure.runner import TrialFailed
from perfaudit.measurements import Settings
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.tune.recording import Record
from perfaudit.tune.report import CALIBRATING_SHARE, tune
from perfaudit.tune.screening import CALIBRATING_QUADS, LATE, NOT_LEARNING
from perfaudit.tune.session import INTERRUPTED
from perfaudit.tune.workshop import Check, Json

STEP = 0.010


class Sizes(Knob):
    """A knob with as many settings as it is told, of which 0 is the user's."""

    title = "sizes"

    def __init__(self, name: str, sizes: Sequence[int], **attributes: Any) -> None:
        self.name, self.sizes = name, sizes
        vars(self).update(attributes)

    def current(self, survey: Survey) -> Settings:
        return {"size": 0}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{"size": size} for size in self.sizes]

    def size(self, settings: Settings) -> int:
        return int(str(settings["size"]))

    def setup(self, settings: Settings) -> Setup:
        return Setup()

    def words(self, settings: Settings, survey: Survey) -> str:
        return f"take size {settings['size']}"

    def is_checked(self, settings: Settings) -> bool:
        return False

    def remarks(self, told: Told) -> list[str]:
        return [f"{len(told.trials)} sizes were tried"]


@dataclass
class Shop:
    """A workshop whose steps take `speeds[size]` times STEP; `forward` is half of the user's step."""

    clock: FakeClock
    speeds: dict[int, float]
    opening: float = 0.2
    asked: list[str] = field(default_factory=list)
    opened: list[list[int]] = field(default_factory=list)
    dies_at: int = sys.maxsize  # blocks until the whole run is interrupted
    lasts: int = sys.maxsize  # see `switches.Shop`
    blocks: int = 0
    broken: str = ""
    refused: tuple[int, ...] = ()  # sizes that cannot be put in place in a training that runs
    looked: list[list[int]] = field(default_factory=list)  # sizes of each race in one training
    queued, noise, control, way = 0.0, 0.0, 1.0, "code"  # of that training, see `switches.Shop`
    waiting = preloading = 0.0  # seconds that torch and other libraries take to be imported
    seconds_checking = 0.0

    def facts(self) -> Facts:
        return facts(project_files=("t.py",), factories={}, factory_files={})

    def lab(self, check: Check | None = None, start_of: Any = None, known: Any = None) -> ChildLab:
        return self

    def open(self, variants: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        self.opened.append([int(str(v.settings.get("size", 0))) for v in variants])
        self.clock.sleep(self.opening * len(variants))
        return {v.key: Steps(self, int(str(v.settings.get("size", 0)))) for v in variants}

    def wait_for_torch(self) -> None:
        self.clock.sleep(self.waiting)

    def preload_libraries(self) -> float:
        return self.preloading

    def ask(self, variant: Variant, *commands: Json) -> list[Json]:
        self.clock.sleep(self.opening)
        if self.broken:
            raise ChildFailed("target", self.broken)
        block = {"steps": 4, "wall": 4 * STEP, "phases": phases_of(4 * STEP), "finite": True}
        return [facts_json(self.facts()), *(block if command["do"] == "block" else {} for command in commands)]

    def engine(self) -> Engine:
        self.clock.sleep(self.opening)
        return Engine(self)

    def speed(self, on: dict[str, int]) -> float:
        return self.speeds[on["size"]]

    def crashes(self, on: dict[str, int]) -> None: ...

    def ends(self, updates: int, on: dict[str, int]) -> str:
        return ""

    def fails(self, on: dict[str, int]) -> None: ...

    def trace(self, files: list[str]) -> Json:
        raise NotImplementedError


def phases_of(seconds: float) -> dict[str, float]:
    return {"forward": 0.5 * seconds, "backward": 0.45 * seconds, "optimizer": 0.05 * seconds}


class Engine(SwitchEngine):
    """The training of that workshop."""

    def screen(self, entrants: list[Json], least: float | None, seed: int, **more: Any) -> Json:
        sizes = {item["key"]: int(item["settings"][0][1]["size"]) for item in entrants}
        if sizes:
            self.shop.looked.append(list(sizes.values()))
        self.refused = {key: "it is not built in a step" for key, size in sizes.items() if size in self.shop.refused}
        self.on = {BASE: {"size": 0}, CONTROL: {"size": 0}}
        self.on |= {key: {"size": size} for key, size in sizes.items() if key not in self.refused}
        others = [key for key in self.on if key not in (BASE, CONTROL)]
        race = Race(others, Terms(least, seed, rivals=Asked(**more).rivals))
        return self.begin(race, dict.fromkeys(sizes, "loader"))


@dataclass
class Steps:
    shop: Shop
    size: int

    def block(self, steps: int, untimed: int = 1) -> Block:
        self.shop.blocks += 1
        if self.shop.blocks > self.shop.dies_at:
            raise KeyboardInterrupt
        seconds = self.shop.speeds[self.size] * STEP
        self.shop.clock.sleep(seconds * (steps + 1))
        return Block(steps, seconds * steps, seconds * steps, 8 * steps, phases=phases_of(seconds * steps))

    def close(self) -> None:
        pass


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, clock: FakeClock, project: Callable[..., Path]) -> Callable[..., Report]:
    """`search(shop, knob, ...)` tunes these knobs within a budget."""
    project(**{"t.py": "import torch\n"})

    def run(shop: Shop, *knobs: Knob, budget: float = 1000.0, **options: Any) -> Report:
        for each in knobs:
            module = types.ModuleType(f"perfaudit.knobs.{each.name}")
            module.KNOB = each  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, module.__name__, module)
        names = [each.name for each in knobs]
        return tune(Target("t.py", {}), names, budget, workshop=shop, clock=clock, **options)

    return run


def test_the_fastest_of_many_is_found_and_raced(search: Callable[..., Report], clock: FakeClock) -> None:
    shop = Shop(clock, {0: 1.0, 1: 0.9, 2: 0.7, 3: 0.8, 4: 1.2})
    (winner,) = search(shop, Sizes("sizes", [1, 2, 3, 4])).winners
    assert (winner.settings, winner.keeps_current) == ({"size": 2}, False)
    assert winner.saving is not None and winner.saving.low == pytest.approx(0.3)
    assert winner.remarks == ("5 sizes were tried",)
    assert shop.opened[0] == [0, 1, 2, 3, 4]  # the first look
    assert sorted(shop.opened[1]) == [0, 2, 3]  # the race


def test_knobs_raced_in_fresh_processes_have_a_control_too(search: Callable[..., Report], clock: FakeClock) -> None:
    shop = Shop(clock, {0: 1.0, 1: 0.9})
    report = search(shop, Sizes("sizes", [1]))
    control = report.calibration
    assert control is not None and shop.looked == []  # nothing but the control was raced in that training
    assert control.rounds >= CALIBRATING_QUADS
    assert (control.ratio, control.low, control.high) == (pytest.approx(1.0),) * 3
    assert control.seconds_per_step == pytest.approx(STEP)


def test_a_control_takes_a_small_share_of_the_budget(search: Callable[..., Report], clock: FakeClock) -> None:
    class Unending(Engine):
        def race(self, seconds: float, last: bool) -> Json:
            raced.append(seconds)
            return super().race(seconds, last)

    raced: list[float] = []
    shop = Shop(clock, {0: 100.0, 1: 90.0})  # a step of a second
    shop.engine = lambda: Unending(shop)  # type: ignore[method-assign]
    report = search(shop, Sizes("sizes", [1]), budget=100.0)
    assert sum(raced) <= CALIBRATING_SHARE * 100.0 + 1e-6
    assert report.calibration is not None and report.calibration.rounds < CALIBRATING_QUADS
    assert report.calibration.low is None


@pytest.mark.parametrize(("seconds", "least", "most"), [(40.0, 35.0, 40.0), (20.0, 17.0, 22.0)])
def test_a_race_begins_no_block_that_may_outlast_it(
    search: Callable[..., Report], clock: FakeClock, seconds: float, least: float, most: float
) -> None:
    """Each fourth block has an evaluation in it, which takes as long as three steps more. A tenth of the race is kept at most."""

    class Evaluating(Engine):
        def screen(self, *entrants: Any, **more: Any) -> Json:
            times.append(clock.now())
            return super().screen(*entrants, **more)

        def _step(self, turn: Turn) -> float:
            longer = 3.0 if self.shop.blocks % 4 == 3 else 0.0
            clock.sleep(longer)
            return super()._step(turn) + longer

        def close(self) -> None:
            times.append(clock.now())

    times: list[float] = []
    shop = Shop(clock, {0: 100.0, 1: 90.0})  # a step of a second
    shop.engine = lambda: Evaluating(shop)  # type: ignore[method-assign]
    search(shop, Sizes("sizes", [1]), budget=seconds / CALIBRATING_SHARE)
    began, ended = times
    assert least <= ended - began <= most


def test_a_training_that_ends_while_it_is_raced_against_itself_is_no_end(
    search: Callable[..., Report], clock: FakeClock
) -> None:
    class Dying(Engine):
        def race(self, seconds: float, last: bool) -> Json:
            raise ChildFailed("crash", "the process ended")

    shop = Shop(clock, {0: 1.0, 1: 0.9})
    shop.engine = lambda: Dying(shop)  # type: ignore[method-assign]
    report = search(shop, Sizes("sizes", [1]))
    assert report.calibration is None and report.winners[0].settings == {"size": 1}
    assert report.notes == ("the training in which your code is raced against itself ended early: the process ended",)


@pytest.mark.parametrize(
    ("threads", "computing", "queued", "said"),
    [
        (1, 0.5, 0.5, "the machine is busy: a step takes 2.0 times its processor time, so intervals are wide and verdicts late"),
        (1, 0.7, 0.3, ""),
        (1, 0.5, 0.05, ""),  # it waits for something else
        (2, 0.5, 0.5, ""),  # seconds of several threads do not add up
    ],
)  # fmt: skip
def test_a_busy_machine_is_told(
    search: Callable[..., Report], clock: FakeClock, threads: int, computing: float, queued: float, said: str
) -> None:
    class Busy(Engine):
        def race(self, seconds: float, last: bool) -> Json:
            state = super().race(seconds, last)
            return {**state, "base": {**state["base"], "cpu": computing * state["base"]["wall"]}}

    shop = Shop(clock, {0: 1.0, 1: 0.9})
    shop.queued = queued
    shop.facts = lambda: facts(project_files=("t.py",), host={"threads": threads})  # type: ignore[method-assign]
    shop.engine = lambda: Busy(shop)  # type: ignore[method-assign]
    assert search(shop, Sizes("sizes", [1])).notes == ((said,) if said else ())


def test_few_settings_are_raced_at_once(search: Callable[..., Report], clock: FakeClock) -> None:
    shop = Shop(clock, {0: 1.0, 1: 0.9})
    report = search(shop, Sizes("sizes", [1]))
    assert shop.opened == [[0, 1]] * 4  # clear at the first look at the data
    assert report.comparisons[0].n == 12


def test_equally_fast_settings_the_smaller_is_taken(search: Callable[..., Report], clock: FakeClock) -> None:
    shop = Shop(clock, {0: 1.0, 1: 0.81, 2: 0.80})
    assert search(shop, Sizes("sizes", [1, 2])).winners[0].settings == {"size": 1}


def test_what_gains_less_than_it_must_is_not_taken(search: Callable[..., Report], clock: FakeClock) -> None:
    shop = Shop(clock, {0: 1.0, 1: 0.98})
    (winner,) = search(shop, Sizes("sizes", [1], min_gain=0.03)).winners
    assert winner.keeps_current
    assert winner.words == "keep what you have: only 2.0 % is certain to be gained, and a change must gain 3 %"


def test_a_piece_that_got_faster_in_a_step_that_got_slower_is_not_taken(
    search: Callable[..., Report], clock: FakeClock
) -> None:
    shop = Shop(clock, {0: 1.0, 1: 1.04})

    class Piece(Steps):
        def block(self, steps: int, untimed: int = 1) -> Block:
            seen = super().block(steps)
            return Block(
                seen.steps,
                seen.wall,
                seen.cpu,
                seen.samples,
                phases={"optimizer": 0.1 * STEP * steps * (1 - self.size)},
            )

    shop.open = lambda variants: {v.key: Piece(shop, int(str(v.settings.get("size", 0)))) for v in variants}  # type: ignore[method-assign, misc]
    report = search(shop, Sizes("sizes", [1], phases=("optimizer",)))
    assert [(c.of, c.verdict) for c in report.comparisons] == [("optimizer", "faster"), ("step", "slower")]
    assert report.winners[0].keeps_current


def test_a_piece_whose_gain_does_not_show_in_the_step_is_not_taken(
    search: Callable[..., Report], clock: FakeClock
) -> None:
    """The device is done earlier with the update, and the host takes as long as before: the step stays what it was."""
    shop = Shop(clock, {0: 1.0, 1: 1.0})

    class Piece(Steps):
        def block(self, steps: int, untimed: int = 1) -> Block:
            seen = super().block(steps)
            phases = {"optimizer": 0.1 * STEP * steps * (1 - 0.5 * self.size)}
            return Block(seen.steps, seen.wall, seen.cpu, seen.samples, phases=phases)

    shop.open = lambda variants: {v.key: Piece(shop, int(str(v.settings.get("size", 0)))) for v in variants}  # type: ignore[method-assign, misc]
    report = search(shop, Sizes("sizes", [1], phases=("optimizer",)))
    assert [(c.of, c.verdict) for c in report.comparisons] == [("optimizer", "faster"), ("step", "undecided")]
    assert report.winners[0].keeps_current


def test_what_looks_slower_is_given_up_and_said_so(search: Callable[..., Report], clock: FakeClock) -> None:
    shop = Shop(clock, {0: 1.0, 1: 1.3})
    report = search(shop, Sizes("sizes", [1]))
    assert shop.opened == [[0, 1]] * 2
    assert report.winners[0].words == "keep what you have: size=1 looked 30 % slower and was not measured further"
    assert not report.notes


def test_what_was_checked_is_still_told_after_resuming(search: Callable[..., Report], clock: FakeClock) -> None:
    from perfaudit.measure.ledger import Ledger

    ledger, again = Ledger(checked={"sizes": "losses agree"}, failures={"b": "died"}, seconds_to_open=2.0), Ledger()
    again.take(ledger.state())
    assert (again.checked, again.failures, again.seconds_to_open) == (ledger.checked, ledger.failures, 2.0)


def test_knobs_that_can_gain_more_come_first_and_those_that_cannot_are_named(
    search: Callable[..., Report], clock: FakeClock
) -> None:
    shop = Shop(clock, {0: 1.0, 1: 0.9})
    knobs = [
        Sizes("late", [1], phases=("backward",)),
        Sizes("early", [1]),
        Sizes("idle", [1], phases=("zero_grad",)),
        Sizes("absent", [1], not_applicable=lambda survey: "there is no absent here"),
    ]
    report = search(shop, *knobs, skips_idle=True)
    assert [trial.knob for trial in report.trials if trial.settings == {"size": 1}] == ["early", "late"]
    assert {item.knob: item.reason for item in report.not_applicable} == {
        "absent": "there is no absent here",
        "idle": "zero grad takes 0.0 % of the step, so there is next to nothing to gain",
    }


def test_what_is_named_is_searched_however_little_it_can_gain(search: Callable[..., Report], clock: FakeClock) -> None:
    shop = Shop(clock, {0: 1.0, 1: 0.9})
    assert search(shop, Sizes("idle", [1], phases=("zero_grad",))).trials


@pytest.mark.parametrize("budget", [5, 20, 60, 200])
def test_the_budget_holds_and_what_it_was_too_small_for_is_said(
    search: Callable[..., Report], clock: FakeClock, budget: float
) -> None:
    shop = Shop(clock, {0: 1.0, 1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6})
    knobs = [Sizes("one", [1, 2, 3, 4]), Sizes("two", [1, 2]), Sizes("three", [3])]
    report = search(shop, *knobs, budget=budget)
    assert clock.now() <= 1.1 * budget
    for winner in report.winners:
        assert winner.saving is not None or "budget was too small" in winner.words
    if budget >= 60:
        assert len([w for w in report.winners if not w.keeps_current]) == 3


def test_winners_are_in_the_order_of_what_they_save(search: Callable[..., Report], clock: FakeClock) -> None:
    shop = Shop(clock, {0: 1.0, 1: 0.9, 2: 0.8, 3: 0.7})
    report = search(shop, Sizes("a", [1]), Sizes("b", [3]), Sizes("c", [2]))
    assert [winner.knob for winner in report.winners] == ["b", "c", "a"]


class Kept(Record):
    """A record in memory, through JSON as a journal has it."""

    def __init__(self) -> None:
        super().__init__()
        self.generations: list[tuple[Json, dict[str, Any]]] = []
        self.answers: dict[str, Json] = {}
        self.kept: list[tuple[str, str, Json]] = []

    def earlier_sets(self, stage: str) -> list[tuple[Generation, dict[str, Any]]]:
        return [(from_json(g), f) for g, f in self.generations if g["stage"] == stage]

    def keep_set(self, stage: str, generation: Generation, state: dict[str, Any]) -> None:
        self.generations.append((to_json(generation), dict(state)))

    def earlier_answer(self, key: str) -> Json | None:
        return self.answers.get(key)

    def note(self, kind: str, key: str, data: Json) -> None:
        if kind == "answer":
            self.answers[key] = data
        self.kept.append((kind, key, copy.deepcopy(data)))  # a race goes on with its lists

    def notes(self, kind: str, key: str) -> list[Json]:
        return [data for of, under, data in self.kept if (of, under) == (kind, key)]


def test_an_interrupted_search_tells_what_it_knows_and_is_resumed_where_it_stood(
    search: Callable[..., Report], clock: FakeClock
) -> None:
    speeds = {0: 1.0, 1: 0.9, 2: 0.7, 3: 0.8, 4: 1.2}
    knobs = [Sizes("one", [1, 2, 3, 4]), Sizes("two", [1])]
    whole = search(Shop(clock, speeds), *knobs)
    record = Kept()
    killed = search(Shop(clock, speeds, dies_at=140), *knobs, begin=lambda start: record)
    assert killed.interrupted
    assert killed.trials
    again = Shop(clock, speeds)
    resumed = search(again, *knobs, begin=lambda start: record)
    assert [w.settings for w in resumed.winners] == [w.settings for w in whole.winners]
    assert len(resumed.comparisons) == len(whole.comparisons)
    assert 0 < again.blocks < 120


def test_an_interruption_loses_nothing_of_the_race_of_the_code_against_itself(
    search: Callable[..., Report], clock: FakeClock
) -> None:
    class Interrupted(Engine):
        def race(self, seconds: float, last: bool) -> Json:
            if raced:
                raise KeyboardInterrupt
            raced.append(seconds)
            return {**super().race(seconds, last), "learns": False}

    raced: list[float] = []
    shop = Shop(clock, {0: 1.0, 1: 0.9})
    shop.engine = lambda: Interrupted(shop)  # type: ignore[method-assign]
    report = search(shop, Sizes("sizes", [1]))
    assert report.interrupted and report.trials == ()
    assert report.calibration is not None and report.calibration.seconds_per_step == pytest.approx(STEP)
    assert report.environment is not None
    assert report.notes == (NOT_LEARNING, INTERRUPTED)


def test_a_target_that_does_not_load_is_the_users_error(search: Callable[..., Report], clock: FakeClock) -> None:
    from perfaudit.errors import TargetError

    with pytest.raises(TargetError, match="no module named nowhere"):
        search(Shop(clock, {0: 1.0}, broken="no module named nowhere"), Sizes("one", [1]))


def test_a_run_lies_in_a_journal_and_is_resumed_from_it(search: Callable[..., Report], clock: FakeClock) -> None:
    from perfaudit.measure.journal import all_runs
    from perfaudit.tune.recording import begin

    speeds = {0: 1.0, 1: 0.9, 2: 0.7, 3: 0.8, 4: 1.2}
    knobs = [Sizes("one", [1, 2, 3, 4]), Sizes("two", [1])]
    killed = search(Shop(clock, speeds, dies_at=140), *knobs, begin=begin(Path(), False))
    (run,) = all_runs(Path())
    assert (run.status, killed.interrupted) == ("interrupted", True)
    again = Shop(clock, speeds)
    resumed = search(again, *knobs, begin=begin(Path(), True))
    (run,) = all_runs(Path())
    assert run.status == "finished"
    assert run.report is not None
    assert [w["settings"] for w in run.report["winners"]] == [w.settings for w in resumed.winners]
    assert 0 < again.blocks < 120


def test_what_was_measured_of_other_source_is_not_resumed(search: Callable[..., Report], clock: FakeClock) -> None:
    from perfaudit.errors import UserError
    from perfaudit.tune.recording import begin

    search(Shop(clock, {0: 1.0, 1: 0.9}, dies_at=20), Sizes("one", [1]), begin=begin(Path(), False))
    Path("t.py").write_text("import torch  # changed\n")
    with pytest.raises(UserError, match=r"cannot be resumed: t\.py has changed"):
        search(Shop(clock, {0: 1.0, 1: 0.9}), Sizes("one", [1]), begin=begin(Path(), True))


def test_without_an_unfinished_run_there_is_nothing_to_resume(search: Callable[..., Report], clock: FakeClock) -> None:
    from perfaudit.errors import UserError
    from perfaudit.tune.recording import begin

    with pytest.raises(UserError, match="no run of `perfaudit tune` in this folder is unfinished"):
        search(Shop(clock, {0: 1.0, 1: 0.9}), Sizes("one", [1]), begin=begin(Path(), True))


def test_a_race_waits_for_a_step_little_longer_than_there_is_time(
    search: Callable[..., Report], clock: FakeClock
) -> None:
    class Seen(Engine):
        longest = math.inf

        def race(self, seconds: float, last: bool) -> Json:
            given.append(self.longest)
            return super().race(seconds, last)

    given: list[float] = []
    shop = Shop(clock, {0: 1.0, 1: 0.9})
    shop.engine = lambda: Seen(shop)  # type: ignore[method-assign]
    search(shop, Sizes("sizes", [1]), budget=100.0)
    assert given and all(LATE <= seconds <= CALIBRATING_SHARE * 100.0 + LATE for seconds in given)
    assert given == sorted(given, reverse=True)
