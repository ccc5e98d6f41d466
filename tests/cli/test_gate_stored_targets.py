"""`perfaudit gate init`, `gate update` and a gate against the file that these write: which targets, factories and findings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Done
from gate_programs import SILENT, SLOW, TARGET, commit, git
from surveys import facts

from perfaudit.cli.gate_options import texts_of_targets
from perfaudit.errors import UserError
from perfaudit.gate import against_commit, against_file, request, stock
from perfaudit.gate.baseline import read_gate_baseline
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.comparable import Seconds
from perfaudit.gate.step_time import TooShort
from perfaudit.gate.target_counters import Counted
from perfaudit.measure.counted_script import ENOUGH_SECONDS
from perfaudit.target.names import Target

Run = Callable[..., Done]

FACTS = facts(host={"threads": 2})
COUNTED = Counted(
    {
        "operators": 100, "flops": 10, "bytes_allocated": 10, "peak_live_bytes": 10, "host_syncs": 0, "parameters": 18,
        "trainable_parameters": 18, "samples": 8, "dataset_samples": 32, "samples_repeated": 0, "samples_skipped": 0,
    },
    facts=FACTS,
)  # fmt: skip


class Steps:
    """Counting and timing played: each operator stands in the text of a target as `# operators: 100`."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, dict[str, str]]] = []  # files and factories
        self.timed: list[str] = []
        self.enough: list[float] = []  # seconds after which few steps will do
        self.facts = FACTS
        self.crashes = ""

    def count(
        self, target: Target, checkout: Checkout | None, *_: object, enough: float = ENOUGH_SECONDS, **__: object
    ) -> Counted:
        self.enough.append(enough)
        if checkout is None:
            self.counted.append((target.file, dict(target.names)))
        _, said, number = Path(checkout.folder if checkout else "", target.file).read_text().partition("# operators: ")
        operators = int(number.split()[0]) if said else 100
        versions = {"torch": self.facts.host.torch, "dtype": ", ".join(self.facts.model.dtypes)}
        return replace(COUNTED, values={**COUNTED.values, "operators": operators}, facts=self.facts, **versions)

    def step_time(self, target: Target, *_: object) -> tuple[Seconds, dict[str, Any]]:
        if self.crashes:
            raise UserError(self.crashes)
        self.timed.append(target.file)
        return Seconds(0.01, 0.01, 0.01, 12), self.facts


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    played = Steps()
    for module in (against_commit, against_file, request, stock):
        monkeypatch.setattr(module, "count", played.count)
    for module in (against_file, stock):
        monkeypatch.setattr(module, "step_time", played.step_time)
    return played


def gated(perfaudit: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = perfaudit("gate", *arguments, "--format", "json", "--no-history")
    return done.code, json.loads(done.out)["gate"] if done.out else {"err": done.err}


def verdicts(gate: dict[str, Any]) -> dict[str, str]:
    return {counted["target"]: counted["verdict"] for counted in gate["counters"]}


# ---- which targets ---------------------------------------------------------------------------------------------------


SCRIPT = "import torch\n# operators: 100\n"
NAMES = '[tool.perfaudit.targets]\nsmall = "train.py -n {}"\n'


def test_scripts_are_kept_and_judged_by_their_names(project: Callable[..., Path], perfaudit: Run, steps: Steps) -> None:
    folder = project(**{"train.py": SCRIPT, "pyproject.toml": NAMES.format(1)})
    assert perfaudit("gate", "init", "train.py", "--ci", "none", "--", "-n", "3").code == 0
    assert perfaudit("gate", "update", "--accept", "another one", "small").code == 0
    stored = read_gate_baseline(Path("perfaudit-gate.json")).targets
    assert {label: state.script for label, state in stored.items()} == {
        "small": Target("train.py", {}, ("-n", "1")), "train.py -n 3": Target("train.py", {}, ("-n", "3")),
    }  # fmt: skip
    code, gate = gated(perfaudit)
    assert (code, verdicts(gate)) == (0, {"small": "pass", "train.py -n 3": "pass"})
    (folder / "train.py").write_text(SCRIPT.replace("100", "101"))
    assert verdicts(gated(perfaudit, "small")[1]) == {"small": "regressed"}
    (folder / "pyproject.toml").write_text(NAMES.format(2))
    code, gate = gated(perfaudit, "small")
    assert (code, gate["counters"][0]["reason"]) == (
        3,
        "perfaudit-gate.json has counters of it as train.py -n 1, and it is train.py -n 2 now; where that is wanted: "
        'perfaudit gate update --accept "why"',
    )
    (folder / "pyproject.toml").write_text("")
    code, gate = gated(perfaudit)
    assert (code, verdicts(gate)) == (1, {"small": "failed", "train.py -n 3": "regressed"})


def test_a_short_budget_counts_briefly_against_a_file_too(
    project: Callable[..., Path], perfaudit: Run, steps: Steps
) -> None:
    project(**{"train.py": SCRIPT})
    assert perfaudit("gate", "init", "train.py", "--ci", "none", "--", "-n", "3").code == 0
    assert gated(perfaudit, "--budget", "30s")[0] == 0
    assert steps.enough == [ENOUGH_SECONDS, 5.0]


def test_a_script_that_ends_too_soon_is_said_to_have_no_time(
    project: Callable[..., Path], perfaudit: Run, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise TooShort("it ends")

    monkeypatch.setattr(stock, "step_time", end)
    project(**{"train.py": SCRIPT})
    done = perfaudit("gate", "init", "train.py", "--ci", "none", "--", "-n", "3")
    assert done.code == 0
    assert "train.py -n 3: not timed: it ends before a block of its steps is timed" in done.err


def test_names_of_the_project_file_are_the_targets_where_none_is_said(
    project: Callable[..., Path], perfaudit: Run, steps: Steps
) -> None:
    project(**{"train.py": SCRIPT, "model.py": TARGET, "pyproject.toml": NAMES.format(1) + 'nets = "model.py"\n'})
    assert perfaudit("gate", "init", "--ci", "none").code == 0
    assert list(read_gate_baseline(Path("perfaudit-gate.json")).targets) == ["model.py", "small"]


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["a.py", "--", "-n", "1 2"], ["a.py -n '1 2'"]),
        (["--", "a.py", "b.py"], ["a.py", "b.py"]),  # nothing before it: these are the targets
        (["-m", "pkg", "--", "x"], ["-m pkg x"]),
        (["a.py -n 1", "b.py"], ["a.py -n 1", "b.py"]),
    ],
)
def test_what_is_typed_for_targets(arguments: list[str], texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["perfaudit", "gate", *arguments])
    given = [each for each in arguments if each not in ("--", "-m")]
    assert texts_of_targets(given, "-m" in arguments) == texts


def test_arguments_are_for_one_target(perfaudit: Run) -> None:
    done = perfaudit("gate", "a.py", "b.py", "--against", "HEAD", "--", "-n")
    assert (done.code, "arguments behind -- are for one target" in done.err) == (2, True)


def test_the_targets_of_the_file_are_judged_where_none_is_named(
    project: Callable[..., Path], perfaudit: Run, steps: Steps
) -> None:
    folder = project(**{"src/train.py": TARGET, "eval.py": TARGET})
    assert perfaudit("gate", "init", "src/train.py", "--ci", "none").code == 0
    code, gate = gated(perfaudit)
    assert (code, verdicts(gate), gate["notes"]) == (0, {"src/train.py": "pass"}, [])  # and not eval.py, which is here
    (folder / "src" / "train.py").write_text(f"{TARGET}# operators: 101\n")
    code, gate = gated(perfaudit)
    assert (code, verdicts(gate)) == (1, {"src/train.py": "regressed"})


def test_targets_of_the_file_that_were_not_named_are_told(
    project: Callable[..., Path], perfaudit: Run, steps: Steps
) -> None:
    project(**{"train.py": TARGET, "eval.py": TARGET})
    perfaudit("gate", "init", "train.py", "eval.py", "--ci", "none")
    code, gate = gated(perfaudit, "train.py")
    assert (code, verdicts(gate)) == (0, {"train.py": "pass"})
    assert gate["notes"] == ["perfaudit-gate.json has counters of eval.py too, which are not judged: not named"]
    assert gated(perfaudit, "--layers", "findings")[1]["notes"] == []


def test_a_target_whose_file_is_gone_is_no_pass_until_it_is_dropped(
    project: Callable[..., Path], perfaudit: Run, steps: Steps
) -> None:
    folder = project(**{"train.py": TARGET, "eval.py": TARGET})
    perfaudit("gate", "init", "train.py", "eval.py", "--ci", "none")
    (folder / "eval.py").unlink()
    code, gate = gated(perfaudit)
    assert (code, verdicts(gate)) == (3, {"eval.py": "failed", "train.py": "pass"})
    (reason,) = [counted["reason"] for counted in gate["counters"] if counted["target"] == "eval.py"]
    assert reason.startswith(
        "perfaudit-gate.json has counters of it, and there is no such file; where that is wanted: "
    )
    done = perfaudit("gate", "update", "--accept", "one model less")
    assert (done.code, "  eval.py is gone\n" in done.err) == (0, True), done.err
    code, gate = gated(perfaudit)
    assert (code, verdicts(gate)) == (0, {"train.py": "pass"})


def test_targets_outside_the_working_directory_are_not_judged_there(
    project: Callable[..., Path], perfaudit: Run, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(**{"train.py": TARGET, "below/eval.py": TARGET, "empty/net.py": SILENT})
    perfaudit("gate", "init", "train.py", "below/eval.py", "--ci", "none")
    monkeypatch.chdir(folder / "below")
    code, gate = gated(perfaudit, "--baseline", "../perfaudit-gate.json")
    assert (code, verdicts(gate)) == (0, {"eval.py": "pass"})
    assert gate["notes"] == [
        "../perfaudit-gate.json has counters of ../train.py too, which are not judged: outside the working directory"
    ]
    monkeypatch.chdir(folder / "empty")
    code, gate = gated(perfaudit, "--baseline", "../perfaudit-gate.json")
    assert (code, set(verdicts(gate).values())) == (3, {"failed"})


# ---- which factories -------------------------------------------------------------------------------------------------

TWO = TARGET + "\n\ndef make_a():\n    return nn.Linear(8, 3)\n\n\ndef make_b():\n    return nn.Linear(8, 4)\n"


def test_the_factories_of_a_target_are_kept_and_used(
    project: Callable[..., Path], perfaudit: Run, steps: Steps
) -> None:
    project(**{"train.py": TWO})
    perfaudit("gate", "init", "train.py:make_a", "--ci", "none")
    file = Path("perfaudit-gate.json")
    assert read_gate_baseline(file).targets["train.py"].names == {"model": "make_a"}
    gated(perfaudit)
    gated(perfaudit, "train.py")
    perfaudit("gate", "update", "--accept", "why")
    perfaudit("gate", "update", "train.py", "--accept", "why")
    assert steps.counted == [("train.py", {"model": "make_a"})] * 5
    code, gate = gated(perfaudit, "train.py:make_b")
    assert (code, verdicts(gate), len(steps.counted)) == (3, {"train.py": "failed"}, 5)
    assert gate["counters"][0]["reason"] == (
        "perfaudit-gate.json has counters of it with other factories (model make_a) than those asked for (model make_b)"
    )
    done = perfaudit("gate", "update", "train.py:make_b", "--accept", "the other one")
    assert "  train.py factories model make_a -> model make_b\n" in done.err
    assert gated(perfaudit, "train.py:make_b")[0] == 0


def test_factories_that_the_project_configures_are_not_kept(
    project: Callable[..., Path], perfaudit: Run, steps: Steps
) -> None:
    folder = project(**{"train.py": TWO, "pyproject.toml": '[tool.perfaudit.target]\nmodel = "make_a"\n'})
    perfaudit("gate", "init", "train.py", "--ci", "none")
    assert read_gate_baseline(Path("perfaudit-gate.json")).targets["train.py"].names == {}
    (folder / "pyproject.toml").write_text('[tool.perfaudit.target]\nmodel = "make_b"\n')
    gated(perfaudit)
    assert [names for _, names in steps.counted] == [{"model": "make_a"}, {"model": "make_b"}]


@pytest.mark.parametrize("command", [("init",), ("update", "--accept", "why")])
def test_two_targets_of_one_file_are_refused(
    project: Callable[..., Path], perfaudit: Run, steps: Steps, command: tuple[str, ...]
) -> None:
    project(**{"train.py": TWO})
    done = perfaudit("gate", *command, "train.py:make_a", "train.py:make_b")
    assert (done.code, steps.counted) == (2, [])
    assert "train.py is named twice" in done.err
    assert not Path("perfaudit-gate.json").exists()


# ---- which findings --------------------------------------------------------------------------------------------------


def test_known_findings_outside_the_scanned_paths_stay(project: Callable[..., Path], perfaudit: Run) -> None:
    folder = project(**{"a/net.py": SLOW, "b/net.py": SILENT})
    perfaudit("gate", "init", "--ci", "none")
    (folder / "b" / "net.py").write_text(SLOW)
    done = perfaudit("gate", "update", "--accept", "why", "--path", "b")
    assert (done.code, "1 change accepted" in done.err) == (0, True), done.err
    assert [known.path for known in read_gate_baseline(Path("perfaudit-gate.json")).findings] == [
        "a/net.py",
        "b/net.py",
    ]
    assert gated(perfaudit)[0] == 0
    (folder / "a" / "net.py").write_text(SILENT)
    assert "gone: finding" in perfaudit("gate", "update", "--accept", "why").err


# ---- times -----------------------------------------------------------------------------------------------------------


def test_a_stored_time_is_told_wherever_it_was_taken(
    project: Callable[..., Path], perfaudit: Run, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(**{"train.py": TARGET})
    monkeypatch.setattr("perfaudit.gate.comparable.cpu_model", lambda cpuinfo: "AMD EPYC 7B13")
    perfaudit("gate", "init", "--ci", "none")

    def reason() -> str:
        (timed,) = gated(perfaudit)[1]["times"]
        return str(timed["reason"])

    assert reason().startswith("not judged: ")
    steps.crashes = "it ran out of memory"
    assert reason() == "not timed: it ran out of memory"
    steps.crashes, steps.facts = "", facts(host={"threads": 2, "cores": 64})
    timed = len(steps.timed)
    assert reason() == "stored times are of another environment: cores 2 when it was written, 64 now"
    steps.facts = facts(host={"threads": 2, "torch": "2.14.0"})
    assert reason() == "stored times are of another environment: torch 2.13.0 when it was written, 2.14.0 now"
    assert len(steps.timed) == timed  # what would say nothing is not measured


# ---- against a commit ------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit of a target, without a baseline, as the working directory."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")
    folder = project(**{"train.py": TARGET, "below/.keep": "", ".gitignore": ".perfaudit/\n"})
    git("init", "--quiet", "--initial-branch=main")
    commit("one")
    return folder


AGAINST = ("--against", "main", "--layers", "findings,counters")


def accept_a_loss(folder: Path, perfaudit: Run) -> None:
    git("switch", "--quiet", "--create", "deeper")
    slow = "torch.autograd.set_detect_anomaly(True)"
    (folder / "train.py").write_text(f"{TARGET}\n\n{slow}\n# operators: 120\n")
    done = perfaudit("gate", "update", "--accept", "a deeper model")
    assert (done.code, "made anew, 2 changes accepted" in done.err) == (0, True), done.err
    assert "a slower step is accepted by --slower 10% only" in done.err


def test_a_wanted_change_is_accepted_without_a_file_so_far(repository: Path, perfaudit: Run, steps: Steps) -> None:
    accept_a_loss(repository, perfaudit)
    Path("perfaudit-gate.json").rename("kept")
    code, gate = gated(perfaudit, *AGAINST)
    assert (code, gate["findings"]["verdict"], verdicts(gate)) == (1, "regressed", {"train.py": "regressed"})
    Path("kept").rename("perfaudit-gate.json")
    commit("a deeper model")
    code, gate = gated(perfaudit, *AGAINST)
    assert (code, gate["findings"]["verdict"], verdicts(gate)) == (0, "accepted", {"train.py": "accepted"})
    assert gate["counters"][0]["changes"][0]["accepted"] == "a deeper model"


def test_what_was_accepted_with_another_torch_says_so(repository: Path, perfaudit: Run, steps: Steps) -> None:
    accept_a_loss(repository, perfaudit)
    (repository / "train.py").write_text((repository / "train.py").read_text().replace("120", "121"))
    steps.facts = facts(host={"threads": 2, "torch": "2.14.0"})
    code, gate = gated(perfaudit, *AGAINST)
    assert (code, verdicts(gate)) == (1, {"train.py": "regressed"})
    assert (
        "operators is accepted at 120, it is 121 now; what was accepted was counted in another environment (torch 2.13.0 "
        in (gate["counters"][0]["reason"])
    )


@pytest.mark.parametrize("is_absolute", [False, True])
def test_the_baseline_of_the_project_file_is_found_from_below(
    repository: Path, perfaudit: Run, steps: Steps, monkeypatch: pytest.MonkeyPatch, is_absolute: bool
) -> None:
    (repository / "train.py").rename("below/train.py")
    name = f"{repository}/ci.json" if is_absolute else "ci.json"
    (repository / "pyproject.toml").write_text(f'[tool.perfaudit.gate]\nbaseline = "{name}"\n')
    commit("below")
    monkeypatch.chdir(repository / "below")
    accept_a_loss(repository / "below", perfaudit)
    assert (repository / "ci.json").is_file()
    code, gate = gated(perfaudit, *AGAINST)
    assert (code, gate["findings"]["verdict"], verdicts(gate)) == (0, "accepted", {"train.py": "accepted"})


def test_a_file_that_init_wrote_after_the_change_holds_it_already(
    repository: Path, perfaudit: Run, steps: Steps
) -> None:
    perfaudit("gate", "init", "--ci", "none")
    done = perfaudit("gate", "update", "--accept", "a deeper model")
    assert (done.code, "Where `gate init` wrote the file after the change" in done.err) == (2, True)


def test_nothing_to_accept_makes_no_file(project: Callable[..., Path], perfaudit: Run) -> None:
    project(**{"net.py": SILENT})
    done = perfaudit("gate", "update", "--accept", "why")
    assert (done.code, "there is no finding and no target here" in done.err) == (2, True)
    assert not Path("perfaudit-gate.json").exists()
