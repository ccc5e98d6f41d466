"""Patches screened in one running training: what takes part, what a fault does, and that the training is as it was afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeClock

from perfaudit.measure import screening
from perfaudit.measure.race import DECIDED, FUTILE, FUTILE_QUADS
from perfaudit.measure.screening import CONTROL, Candidate, Screening, Twins, prepare_screening
from perfaudit.training import code_variant
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.setting_variant import SettingVariant

TEXT = """
    cost = 1.0
    def forward(clock):
        clock.sleep(cost)
    def evaluate(clock):
        clock.sleep(100.0)
"""
STEP = "clock.sleep(cost)"


class Training:
    """A training whose step runs the user's `forward`, on a clock that passes only there."""

    def __init__(self, module: Any, clock: FakeClock) -> None:
        self.module, self.clock = module, clock
        self.restart_seconds: list[float] = []
        self.steps = 0
        self.loader, self.phases = types.SimpleNamespace(), types.SimpleNamespace(take=dict)

    def whole_step(self, fixed: bool = False) -> None:
        self.steps += 1
        if self.steps % 10 == 0:  # an epoch begins
            self.clock.sleep(50.0)
            self.restart_seconds.append(50.0)
        self.module.forward(self.clock)

    def synchronize(self) -> None: ...

    def restart_per_step(self) -> float:
        return 0.0

    def step_functions(self) -> list[types.FunctionType]:
        return [self.module.forward]


def no_twin(texts: Mapping[str, str]) -> Any:
    raise NotSwappable("no twin here")


def begun(training: Training, candidates: list[Candidate]) -> Screening:
    return prepare_screening(training, candidates, 0.01, 1, Twins(no_twin))


Start = Callable[..., tuple[Screening, Training]]


@pytest.fixture
def start(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """A screening of patches that replace the step's line: `start(fast="clock.sleep(0.5)")`."""
    monkeypatch.setattr(code_variant, "_refuse_compiled", lambda: None)  # what another test of this process compiled
    path = tmp_path / "user_step.py"
    path.write_text(textwrap.dedent(TEXT))
    spec = importlib.util.spec_from_file_location("user_step", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_step"] = module
    spec.loader.exec_module(module)
    monkeypatch.setattr(screening, "time", types.SimpleNamespace(perf_counter=clock.now, process_time=clock.now))

    def begin(old: str = STEP, **patches: str) -> tuple[Screening, Training]:
        before = path.read_text()
        changes = [Candidate(key, {str(path): [before, before.replace(old, new)]}) for key, new in patches.items()]
        training = Training(module, clock)
        return begun(training, changes), training

    yield begin
    del sys.modules["user_step"]


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
    assert state["ways"] == {"low": "setting", CONTROL: "control"}


def test_a_race_goes_on_where_it_stopped(start: Start) -> None:
    race, training = start(half="clock.sleep(cost / 2)")
    mine = training.module.forward.__code__
    seen = []
    while not (state := race.run(5.0))["ended"]:
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
    assert list(race.refused) == ["bad"]
    assert race.refused["bad"].startswith("with it, a step raises ValueError: no")
    assert race.run(1e9)["entrants"].keys() == {"half", CONTROL}
    training.whole_step()


def test_a_patch_that_raises_later_leaves_and_the_training_goes_on(start: Start) -> None:
    race, training = start(bad="clock.sleep(cost if clock.now() < 200 else 1 / 0)", near="clock.sleep(cost * 0.9)")
    mine = training.module.forward.__code__
    state = race.run(1e9)
    assert state["entrants"]["bad"]["left"].startswith("with it, a step raises ZeroDivisionError")
    assert state["entrants"]["near"]["interval"] is not None
    assert training.module.forward.__code__ is mine


def test_a_base_that_raises_is_a_fault_of_the_training(start: Start) -> None:
    race, training = start(half="clock.sleep(cost / 2)")
    mine = training.module.forward.__code__
    training.synchronize = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(ZeroDivisionError):
        race.run(1e9)
    assert training.module.forward.__code__ is mine


def test_a_patch_of_what_no_step_runs_is_refused(start: Start) -> None:
    race, _ = start("clock.sleep(100.0)", other="clock.sleep(1.0)")
    assert race.refused == {"other": "a step does not run evaluate, which the patch changes"}
    assert race.run(1e9)["ended"]


def test_a_patch_of_what_ran_on_import_is_refused(start: Start) -> None:
    race, _ = start("cost = 1.0", other="cost = 2.0")
    assert race.refused == {"other": "the patch changes line 2, which ran on import"}


def test_a_patch_that_changes_no_code_is_refused(start: Start) -> None:
    race, _ = start(other="clock.sleep(cost)  # as before")
    assert race.refused == {"other": "the patch changes no function"}


@pytest.mark.parametrize(
    ("cost", "runs_behind", "block"), [(1.0, False, 1), (0.001, False, 5), (1.0, True, 5), (0.002, True, 25)]
)
def test_how_many_steps_a_block_has(start: Start, clock: FakeClock, cost: float, runs_behind: bool, block: int) -> None:
    _, training = start(half="clock.sleep(cost / 2)")
    training.module.cost = cost
    training.steps = 0
    assert screening._block_steps(training, runs_behind) == block
