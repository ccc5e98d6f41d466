"""A gate against a commit that is cut off: its pairs are in a journal, and count in the gate that resumes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from git_repository import Repository, settled
from test_timing import FakeLab

from perfaudit.config import Config
from perfaudit.errors import UserError
from perfaudit.gate import timing
from perfaudit.gate.gate import gate
from perfaudit.gate.request import Request
from perfaudit.gate.settings import GateSettings
from perfaudit.measure.journal import all_runs, begin
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target
from perfaudit.tune import history

TRAIN = Target("train.py")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    settled(monkeypatch, tmp_path / "temporary")
    made = Repository(tmp_path / "project")
    made.commit(**{"train.py": "steps = 1\n"})
    made.write(**{"train.py": "steps = 2\n"})
    monkeypatch.chdir(made.folder)
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> Callable[..., Any]:
    """Gates a target in pairs of this lab."""

    def run(lab: FakeLab, resume: bool, target: Target = TRAIN) -> Any:
        monkeypatch.setattr(timing, "PairLab", lambda *_: lab)
        monkeypatch.setattr(timing, "time_in_one_training", lambda *_: None)
        monkeypatch.setattr(timing, "WallClock", lambda: clock)
        settings = GateSettings(against="main", layers=("time",))
        request = Request((target,), settings, Config(), begin=begin(Path.cwd(), resume))
        return gate(request, Watch()).gate

    return run


def test_pairs_of_a_gate_that_was_cut_off_count_in_the_one_that_resumes_it(
    repository: Repository, asked: Callable[[FakeLab, bool], Any], clock: FakeClock
) -> None:
    lab, again = FakeLab(clock, (0.1, 0.1)), FakeLab(clock, (0.1, 0.1))
    lab.interrupt_at = 2 * 48 + 20  # two pairs, and one quad of the third
    assert asked(lab, False).verdict == "failed"
    (run,) = all_runs(Path.cwd())
    assert (run.status, run.start["files"].keys(), history.pairs(run)) == ("interrupted", {"train.py"}, {"train.py": 3})
    resumed = asked(again, True)
    assert (resumed.verdict, resumed.times[0].pairs) == ("pass", 4)
    assert [seed - run.start["seed"] for _, _, seed in again.opened] == [3]
    assert all_runs(Path.cwd())[0].status == "finished"
    with pytest.raises(UserError, match="--resume: no run of `perfaudit gate` in this folder is unfinished"):
        asked(again, True)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("train.py", "steps = 3\n", "train.py has changed"),
        ("config.yaml", "batch_size: 8\n", "config.yaml was not read then and is now"),
    ],
)
def test_other_code_and_settings_are_not_mixed_with_it(
    repository: Repository, asked: Callable[[FakeLab, bool], Any], clock: FakeClock, name: str, text: str, why: str
) -> None:
    lab = FakeLab(clock, (0.1, 0.1))
    lab.interrupt_at = 40
    asked(lab, False)
    repository.write(**{name: text})
    with pytest.raises(UserError, match=f"--resume: .* cannot be resumed: {re.escape(why)}"):
        asked(lab, True)


def test_a_named_script_with_other_arguments_is_another_one(
    repository: Repository, asked: Callable[..., Any], clock: FakeClock
) -> None:
    lab = FakeLab(clock, (0.1, 0.1))
    lab.interrupt_at = 40
    asked(lab, False, Target("train.py", arguments=("--batch-size", "8"), name="small"))
    with pytest.raises(UserError, match=r"--resume: .* cannot be resumed: targets was"):
        asked(lab, True, Target("train.py", arguments=("--batch-size", "64"), name="small"))


def test_a_report_beside_the_code_does_not_keep_it_from_being_resumed(
    repository: Repository, asked: Callable[[FakeLab, bool], Any], clock: FakeClock
) -> None:
    lab = FakeLab(clock, (0.1, 0.1))
    lab.interrupt_at = 2 * 48
    asked(lab, False)
    repository.write(**{"gate.json": '{\n  "schema": "perfaudit.report/1"\n}\n'})
    assert asked(FakeLab(clock, (0.1, 0.1)), True).verdict == "pass"
