"""`perfaudit gate` where things are not as they should be: what is refused, what is measured all the same, what is said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from conftest import Done
from gate_programs import SILENT, SLOW, TARGET
from served_nursery import PERFAUDIT

from perfaudit.gate.baseline import Acceptance, Baseline, TargetState, read_gate_baseline, write_gate_baseline
from perfaudit.gate.comparable import Fingerprint
from perfaudit.gate.target_counters import OF_ALL, Counted
from perfaudit.measure.folder import measuring

CRASHES = (
    TARGET
    + """

class Broken(nn.Linear):
    def forward(self, x):
        raise RuntimeError("the step went wrong")


def build_model():
    return Broken(8, 2)
"""
)

Run = Callable[..., Done]
FINDINGS = ("--against", "main", "--layers", "findings")
COUNTERS = ("train.py", "--against", "main", "--layers", "counters")


@pytest.fixture
def repository(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit of a file without findings and a target, as the working directory."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = project(**{"net.py": SILENT, "train.py": TARGET, ".gitignore": ".perfaudit/\n"})
    git("init", "--quiet", "--initial-branch=main")
    commit("one")
    return folder


def git(*arguments: str, folder: Path | None = None) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(message: str, folder: Path | None = None) -> None:
    git("add", "--all", folder=folder)
    git("commit", "--quiet", "-m", message, folder=folder)


def worktrees() -> list[str]:
    lines = git("worktree", "list", "--porcelain").splitlines()
    return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")]


def one_line(text: str) -> str:
    """The words of a report, however they are broken into lines."""
    return " ".join(text.split())


# ---- where it runs ---------------------------------------------------------------------------------------------------


def test_two_gates_at_once(repository: Path, perfaudit: Run) -> None:
    with measuring(repository):
        done = perfaudit("gate", *COUNTERS)
        assert perfaudit("gate", *FINDINGS).code == 0  # nothing is measured, so nothing is disturbed
    assert (done.code, done.out) == (3, "")  # it could be measured a minute later
    assert f"another perfaudit (pid {os.getpid()}, since" in done.err
    assert "measures in this folder; two at once would measure each other" in one_line(done.err)


def test_no_git(repository: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "empty").mkdir()
    monkeypatch.setenv("PATH", str(repository / "empty"))
    done = perfaudit("gate", *FINDINGS)
    assert (done.code, done.out) == (2, "")
    assert "git is not installed, and --against needs it" in one_line(done.err)
    write_gate_baseline(Path("perfaudit-gate.json"), Baseline())
    assert perfaudit("gate", "--layers", "findings").code == 0  # a file needs no git


def test_a_shallow_clone_without_the_reference(
    repository: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("branch", "release")
    (repository / "net.py").write_text(SILENT + "y = 1\n")
    commit("two")
    git("clone", "--quiet", "--depth=1", "--branch=main", repository.as_uri(), "clone")
    monkeypatch.chdir(repository / "clone")
    done = perfaudit("gate", "--against", "origin/release", "--layers", "findings")
    assert (done.code, done.out) == (2, "")
    advice = "git fetch --depth=1 origin +release:refs/remotes/origin/release"
    assert "this clone is shallow; fetch it" in one_line(done.err)
    assert advice in one_line(done.err)
    git(*advice.split()[1:])
    done = perfaudit("gate", "--against", "origin/release", "--layers", "findings")
    assert (done.code, "compared with its tip" in one_line(done.out)) == (0, True)


def test_a_linked_worktree_of_the_user_is_judged_and_stays(
    repository: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("worktrees") / "other"
    git("worktree", "add", "--quiet", "-b", "other", str(other))
    monkeypatch.chdir(other)
    before = worktrees()
    assert perfaudit("gate", *FINDINGS).code == 0
    (other / "net.py").write_text(SLOW)
    done = perfaudit("gate", *FINDINGS)
    assert (done.code, "net.py:2" in done.out) == (1, True)
    assert worktrees() == before


@pytest.mark.slow
def test_a_submodule_is_there_on_both_sides(
    repository: Path, perfaudit: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    upstream = tmp_path_factory.mktemp("upstream")
    git("init", "--quiet", "--initial-branch=main", folder=upstream)
    (upstream / "net.py").write_text("from torch import nn\n\n\ndef net():\n    return nn.Linear(8, 2)\n")
    commit("net", folder=upstream)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(upstream), "lib")
    text = TARGET.replace("from torch import nn\n", "from lib.net import net\n").replace("nn.Linear(8, 2)", "net()")
    (repository / "train.py").write_text(text)
    commit("with a submodule")
    deeper = "nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))"
    (repository / "lib" / "net.py").write_text((upstream / "net.py").read_text().replace("nn.Linear(8, 2)", deeper))
    done = perfaudit("gate", *COUNTERS)
    assert (done.code, "operators" in done.out) == (1, True), done.out + done.err
    assert "submodule lib" not in one_line(done.out)  # which would say that it is empty on one side
    assert len(worktrees()) == 1


def alone(*arguments: str, before: Sequence[str]) -> Done:
    """The command in a process of its own, begun by another command; its children may use and do no more than it."""
    command = [*before, *PERFAUDIT, "gate", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("taskset"), reason="cores cannot be taken away here")
def test_a_runner_with_one_core(repository: Path) -> None:
    core = min(os.sched_getaffinity(0))
    arguments = ("train.py", "--against", "main", "--layers", "counters,time", "--budget", "1s", "--format", "json")
    done = alone(*arguments, before=["taskset", "--cpu-list", str(core)])
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["environment"]["cores"] == 1
    assert [counted["verdict"] for counted in report["gate"]["counters"]] == ["pass"]
    (timed,) = report["gate"]["times"]
    assert timed["verdict"] in ("pass", "inconclusive", "improved")  # a second may or may not be enough


@pytest.fixture
def read_only(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A working directory that cannot be written to; what a command begins with so that root cannot write there either."""
    without = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    monkeypatch.setenv("HOME", "/nonexistent")
    places = [repository, *(path for path in repository.rglob("*") if path.is_dir())]
    for path in places:
        path.chmod(0o555)
    try:
        probe = [*without, sys.executable, "-c", "import os; raise SystemExit(os.access('.', os.W_OK))"]
        if (without and not shutil.which("setpriv")) or subprocess.run(probe, check=False).returncode:
            pytest.skip("this user may write everywhere")
        yield without
    finally:
        for path in places:
            path.chmod(0o755)


@pytest.mark.slow
def test_a_working_directory_and_a_home_that_cannot_be_written_to(read_only: list[str]) -> None:
    arguments = ("train.py", "--against", "main", "--layers", "findings,counters")
    done = alone(*arguments, before=read_only)
    assert done.code == 0, done.out + done.err
    assert "were written without" in one_line(done.out)  # without a worktree, which git could not add
    assert "the history was not written" in one_line(done.err)
    assert not Path(".perfaudit").exists()


# ---- SIGTERM ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sigterm_while_timing_prints_what_was_counted(repository: Path) -> None:
    process = subprocess.Popen(
        [*PERFAUDIT, "gate", "train.py", "--against", "main", "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if "timing both versions" in line:
            break
    (worktree,) = worktrees()[1:]
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    report = json.loads(out)
    assert process.returncode == 130
    assert (report["interrupted"], report["gate"]["verdict"]) == (True, "failed")
    assert [counted["verdict"] for counted in report["gate"]["counters"]] == ["pass"]
    assert (len(worktrees()), Path(worktree).exists()) == (1, False)


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_two_targets_of_one_file(repository: Path, perfaudit: Run) -> None:
    done = perfaudit("gate", "train.py", "./train.py:build_model", *FINDINGS[:2])
    assert (done.code, done.out) == (2, "")
    assert "train.py is named twice" in one_line(done.err)


@pytest.mark.slow
def test_a_reference_whose_file_has_no_factories_yet(repository: Path, perfaudit: Run) -> None:
    (repository / "train.py").write_text(SILENT)
    commit("no factories")
    (repository / "train.py").write_text(TARGET)
    done = perfaudit("gate", *COUNTERS)
    assert (done.code, "new: main" in one_line(done.out)) == (0, True), done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (TARGET, CRASHES, "your code does not run: "),
        (CRASHES, TARGET, "the reference does not run: "),
    ],
)
def test_a_step_that_crashes_on_one_side_only(
    repository: Path, perfaudit: Run, before: str, now: str, words: str
) -> None:
    (repository / "train.py").write_text(before)
    git("commit", "--quiet", "--allow-empty", "--all", "-m", "before")
    (repository / "train.py").write_text(now)
    done = perfaudit("gate", *COUNTERS)
    assert done.code == 3, done.out + done.err
    assert words in one_line(done.out)
    assert "the step went wrong" in one_line(done.out)


# ---- the same work in another type -----------------------------------------------------------------------------------

IN_FLOAT64 = TARGET.replace("nn.Linear(8, 2)", "nn.Linear(8, 2, dtype=torch.float64)").replace(
    "torch.zeros(32, 8)", "torch.zeros(32, 8, dtype=torch.float64)"
)


@pytest.mark.slow
def test_a_change_of_the_type_of_parameters_is_judged_against_a_commit(repository: Path, perfaudit: Run) -> None:
    (repository / "train.py").write_text(IN_FLOAT64)
    done = perfaudit("gate", *COUNTERS, "--format", "json")
    (counted,) = json.loads(done.out)["gate"]["counters"]
    grown = {change["counter"] for change in counted["changes"] if change["after"] > change["before"]}
    assert (done.code, counted["verdict"]) == (1, "regressed")
    assert "bytes_allocated" in grown
    assert not {"operators", "flops", "parameters"} & grown


@pytest.mark.slow
def test_a_file_of_another_type_of_parameters_judges_no_counters(repository: Path, perfaudit: Run) -> None:
    there = Fingerprint("2.0.0", "cpu", "cpu", ("float64",), "Linux x86_64", "3.12", "AMD EPYC 7B13", 2, 2, "")
    absent = dict.fromkeys(OF_ALL[1:], "not here")
    counted = Counted({"operators": 1}, absent=absent, torch=there.torch, dtype="float64")
    state = TargetState(there, counted.as_json())
    write_gate_baseline(Path("perfaudit-gate.json"), Baseline(targets={"train.py": state}))
    done = perfaudit("gate", "train.py", "--layers", "findings,counters", "--report", "github=notes")
    assert done.code == 0, done.out + done.err
    assert "parameters in float64 when it was written, float32 now" in one_line(done.out)
    assert "::warning" in (repository / "notes").read_text()  # a check that nobody would miss otherwise


# ---- a baseline that somebody edited ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (' "findings": [', '<<<<<<< ours\n "findings": [', "a merge conflict is not resolved"),
        ('"reason": "we look for a NaN"', '"reason": ""', "accepted[0].reason must be a string"),
        ('"at": "2026-11-22"', '"at": "today"', "accepted[0].at must be a date"),
        ('"slower": {}', '"slower": {"train.py": "as needed"}', "accepted[0].slower['train.py'] must be a number"),
        ('"rule": "PA501"', '"rule": 501', "findings[0].rule must be a string"),
        ('"findings": [', '"finding": [', "the file has no key 'finding'"),
        ('"perfaudit.gate/1"', '"perfaudit.gate/2"', "made by a newer perfaudit"),
    ],
)
def test_a_baseline_edited_by_hand(repository: Path, perfaudit: Run, old: str, new: str, words: str) -> None:
    file = held(repository, perfaudit)
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    for arguments in (("--layers", "findings"), ("update", "--accept", "so that it is whole again")):
        done = perfaudit("gate", *arguments)
        assert (done.code, done.out) == (2, "")
        assert words in one_line(done.err)
    assert file.read_text() == text.replace(old, new)  # nobody's edits are written over


def test_a_finding_taken_out_by_hand_is_new(repository: Path, perfaudit: Run) -> None:
    file = held(repository, perfaudit)
    assert perfaudit("gate", "--layers", "findings").code == 0
    lines = [line for line in file.read_text().splitlines() if '"rule": "PA501"' not in line]
    file.write_text("\n".join(lines))
    done = perfaudit("gate", "--layers", "findings")
    assert (done.code, "PA501" in done.out) == (1, True)


@pytest.mark.parametrize(
    ("slower", "words"),
    [
        (["--slower", "15"], "'15' is no percentage"),
        (["--slower", "15%"], "a slower step is accepted of a target; name one"),
        (["--slower", "15%", "--no-time"], "choose one"),
    ],
)
def test_a_slower_step_that_cannot_be_accepted(repository: Path, perfaudit: Run, slower: list[str], words: str) -> None:
    file = held(repository, perfaudit)
    text = file.read_text()
    done = perfaudit("gate", "update", "--accept", "it is right", *slower)
    assert (done.code, done.out) == (2, "")
    assert words in one_line(done.err)
    assert file.read_text() == text


def held(repository: Path, perfaudit: Run) -> Path:
    """A baseline that holds one finding, with one acceptance."""
    (repository / "train.py").unlink()
    (repository / "net.py").write_text(SLOW)
    assert perfaudit("gate", "init", "--ci", "none").code == 0
    file = repository / "perfaudit-gate.json"
    known = read_gate_baseline(Path("perfaudit-gate.json"))
    entry = Acceptance("2026-11-22", "we look for a NaN", (), ("new finding",))
    write_gate_baseline(Path("perfaudit-gate.json"), Baseline(known.findings, {}, (entry,)))
    return file
