"""What a gate is asked for: targets of this folder, one of a file, with the factories that were named or are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from surveys import facts

from perfaudit.config import Config
from perfaudit.errors import NothingMeasured, TargetError, UserError
from perfaudit.findings import Finding, Location
from perfaudit.gate import request as module
from perfaudit.gate import stock as stocked
from perfaudit.gate.acceptance import Accepted
from perfaudit.gate.baseline import Acceptance, Baseline, TargetState
from perfaudit.gate.comparable import Seconds, cpu_model, fingerprint
from perfaudit.gate.request import (
    Known,
    Request,
    as_stored,
    inside_here,
    new_counters,
    own_names,
    refuse_two_of_one_label,
    take_findings,
)
from perfaudit.gate.settings import GateSettings
from perfaudit.gate.step_time import TooShort
from perfaudit.gate.stock import stock
from perfaudit.gate.target_counters import Counted
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.environment import host
from perfaudit.measure.watch import Watch
from perfaudit.report import Report
from perfaudit.static.baseline import Known as KnownFinding
from perfaudit.static.plan import OwnRules, plan_of
from perfaudit.target.names import Target
from perfaudit.verdicts import LAYERS, CountersVerdict, FindingsVerdict

Project = Callable[..., Path]
FACTS = facts(host={"threads": 2})
COUNTED = Counted({"operators": 7}, torch="2.13.0", facts=FACTS)
CONFIG = Config(target={"file": "train.py", "model": "make"})


class Stages(Watch):
    def __init__(self) -> None:
        self.said: list[str] = []

    def stage(self, title: str) -> None:
        self.said.append(title)


class Count:
    """In place of counting in processes: what it was asked, and what it answers."""

    def __init__(self, answer: Counted | Exception = COUNTED) -> None:
        self.answer, self.asked = answer, list[tuple[Any, ...]]()

    def __call__(self, *asked: Any, **options: float) -> Counted:
        self.asked.append((*asked, *options.values()))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_targets_are_of_this_folder(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**{"sub/train.py": ""})
    names = {"model": "make"}
    assert inside_here(Target(str(folder / "sub" / "train.py"), names)) == Target("sub/train.py", names)
    assert inside_here(Target("./sub/../sub/train.py")) == Target("sub/train.py")
    monkeypatch.chdir(folder / "sub")
    with pytest.raises(TargetError, match=r"^\.\./train\.py: lies outside the working directory"):
        inside_here(Target("../train.py"))


def test_a_file_is_one_target(project: Project) -> None:
    folder = project(**{"a.py": "", "b.py": ""})
    (folder / "c.py").symlink_to("a.py")
    refuse_two_of_one_label([Target("a.py"), Target("b.py")])
    for other in ("a.py", "./a.py", "c.py"):
        with pytest.raises(
            UserError, match=r"^a\.py is named twice; gate the factories of one file one after the other$"
        ):
            refuse_two_of_one_label([Target("b.py"), Target("a.py"), Target(other)])


def test_a_script_is_a_target_with_each_of_its_arguments() -> None:
    small = Target("a.py", {}, ("-n", "1"), name="small")
    refuse_two_of_one_label([small, Target("a.py", {}, ("-n", "2")), Target("a.py", {}, ())])
    with pytest.raises(UserError, match=r"^small is named twice; name it once$"):
        refuse_two_of_one_label([small, small])


def test_the_names_that_are_stored_are_the_users_own() -> None:
    named = Target("train.py", {"model": "make", "step": "run"})
    assert own_names(named, CONFIG) == {"step": "run"}
    assert own_names(replace(named, names={"model": "other"}), CONFIG) == {"model": "other"}
    state = TargetState(fingerprint(FACTS, host()), names={"dataloader": "load"})
    bare = Target("train.py", {"model": "make"})  # as the configuration has it
    assert as_stored(bare, state, CONFIG).names == {"model": "make", "dataloader": "load"}
    assert as_stored(bare, None, CONFIG) == bare
    assert as_stored(named, state, CONFIG) == named  # who names one means just these


def test_the_processor_of_this_machine_is_part_of_an_environment() -> None:
    assert fingerprint(FACTS, host()).cpu == cpu_model()


def test_layers_that_are_not_named_are_all() -> None:
    assert Request((), GateSettings(), Config()).layers == LAYERS
    assert Request((), GateSettings(layers=("time",)), Config()).layers == ("time",)


@pytest.mark.parametrize(("budget", "seconds"), [(120.0, 20.0), (600.0, 20.0), (30.0, 5.0)])
def test_a_short_budget_counts_briefly(budget: float, seconds: float) -> None:
    assert Request((), GateSettings(budget=budget), Config()).enough_seconds == pytest.approx(seconds)


def test_what_is_known_at_first() -> None:
    assert Known().scanned == Report("gate")
    assert (Known().accepted, Known().records, Known().notes) == (Accepted(), [], [])


def test_new_findings_are_kept_less_what_is_accepted() -> None:
    found = tuple(
        Finding("PA201", "bias", "warning", digest, Location("a.py", 1, 1, 1, 2), text_digest=digest) for digest in "ab"
    )
    accepted = Accepted((Acceptance("2026-11-22", "why"),), (KnownFinding("a.py", "PA201", "a", "a"),))
    known, scanned = Known(accepted=accepted), Report("scan", found)
    take_findings(known, FindingsVerdict("regressed", new=2), found, scanned)
    assert (known.new, known.scanned) == (found[1:], scanned)
    assert known.findings == FindingsVerdict("regressed", "accepted: why", new=1, accepted=1)


def test_a_new_target_has_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = GateSettings(budget=30.0)
    request, known, watch = Request((), settings, Config(), "cpu", 60.0), Known("main (1f2e)"), Stages()
    target, count = Target("new.py"), Count()
    monkeypatch.setattr(module, "count", count)
    verdict = new_counters(request, known, target, watch)
    assert verdict == CountersVerdict("new.py", "not_judged", "new: main (1f2e) does not have it", {"operators": 7})
    assert (count.asked, known.counted) == ([(target, None, "cpu", 60.0, 5.0)], {"new.py": COUNTED})
    assert watch.said == ["counting a step of new.py, which is new"]
    for failure in (ChildFailed("step", "it died"), UserError("it died")):
        monkeypatch.setattr(module, "count", Count(failure))
        assert new_counters(request, known, target, watch) == CountersVerdict(
            "new.py", "failed", "your code does not run: it died"
        )


# ---- the state that is stored ----------------------------------------------------------------------------------------

SECONDS = Seconds(0.01, 0.009, 0.011, 12)
ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"


def measured(monkeypatch: pytest.MonkeyPatch, count: Count) -> list[tuple[Any, ...]]:
    timed: list[tuple[Any, ...]] = []

    def step_time(*asked: Any) -> tuple[Seconds, dict[str, Any]]:
        timed.append(asked)
        return SECONDS, {}

    monkeypatch.setattr(stocked, "count", count)
    monkeypatch.setattr(stocked, "step_time", step_time)
    return timed


def test_what_is_stored_of_a_project(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**{"a/train.py": ANOMALY, "b/other.py": ANOMALY})
    count, watch = Count(), Stages()
    timed = measured(monkeypatch, count)
    names = {"step": "run", "model": "make"}
    request = Request((Target(str(folder / "a/train.py"), names),), GateSettings(paths=("a",)), CONFIG, "cpu", 60.0)
    before = Baseline(
        (
            KnownFinding("a/gone.py", "PA501", "x", "was there"),
            KnownFinding("b/other.py", "PA501", "y", "not looked at"),
            KnownFinding("", "PA101", "z", "of no file, and looked for"),
            KnownFinding("a/train.py", "XY001", "x", "of a rule that there is none of"),
        )
    )
    plan = plan_of(Config(), OwnRules())
    found = stock(request, watch, plan, before)
    target = Target("a/train.py", names)
    assert [(known.path, known.rule) for known in found.findings] == [("b/other.py", "PA501"), ("a/train.py", "PA501")]
    assert found.targets == {
        "a/train.py": TargetState(fingerprint(FACTS, host()), COUNTED.as_json(), SECONDS, {"step": "run"})
    }
    assert (count.asked, timed) == ([(target, None, "cpu", 60.0)], [(target, "cpu", 60.0, watch)])
    assert watch.said == ["scanning", "counting a step of a/train.py"]  # `step_time` says what it times
    left_out = replace(plan, own=OwnRules(left_out={folder / "mine": "why"}))
    rules = {(known.path, known.rule) for known in stock(request, watch, left_out, before).findings}
    assert rules == {("b/other.py", "PA501"), ("a/train.py", "PA501"), ("a/train.py", "XY001")}
    assert [known.path for known in stock(request, watch, plan).findings] == ["a/train.py"]


def test_factories_that_are_stored_are_those_that_are_measured(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(**{"train.py": ""})
    count = Count()
    measured(monkeypatch, count)
    request = Request((Target("train.py"),), GateSettings(), Config(), "cpu", 60.0)
    stored = TargetState(fingerprint(FACTS, host()), names={"model": "make"})
    found = stock(request, Watch(), plan_of(Config(), OwnRules()), Baseline(targets={"train.py": stored}))
    assert (count.asked[0][0].names, found.targets["train.py"].names) == ({"model": "make"}, {"model": "make"})


def test_a_target_that_does_not_run_is_not_stored(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project(**{"train.py": ""})
    measured(monkeypatch, Count(ChildFailed("step", "it died")))
    request, plan = Request((Target("train.py"),), GateSettings(), Config()), plan_of(Config(), OwnRules())
    with pytest.raises(NothingMeasured, match=r"^train\.py does not run: it died$"):
        stock(request, Watch(), plan)
    with pytest.raises(UserError, match="is named twice"):
        stock(replace(request, targets=request.targets * 2), Watch(), plan)


def test_of_a_script_only_an_end_that_comes_too_soon_leaves_no_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(**{"train.py": ""})
    measured(monkeypatch, Count())
    request, plan = (
        Request((Target("train.py", {}, ()),), GateSettings(), Config(), "cpu", 60.0),
        plan_of(Config(), OwnRules()),
    )

    def fail_to_time(error: Exception) -> None:
        def step_time(*asked: Any) -> None:
            raise error

        monkeypatch.setattr(stocked, "step_time", step_time)

    fail_to_time(TooShort("it ends"))
    assert stock(request, Watch(), plan).targets["train.py"].seconds_per_step is None
    fail_to_time(NothingMeasured("out of memory"))
    with pytest.raises(NothingMeasured, match=r"^out of memory$"):
        stock(request, Watch(), plan)
