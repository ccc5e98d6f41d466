"""`perfaudit gate` as it is typed: what is refused, what a layer without user code says, what SIGTERM leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import OWN_RULE, Done
from gate_programs import SILENT, SLOW, TARGET, commit, git
from served_nursery import PERFAUDIT

Run = Callable[..., Done]


@pytest.fixture
def repository(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit of a file without findings, as the working directory."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = project(**{"net.py": SILENT})
    git("init", "--quiet", "--initial-branch=main")
    commit("one")
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to compare with: name a commit (--against origin/main), or write a baseline"),
        (["--against", "main", "--baseline", "gate.json"], "choose one"),
        (["--against", "nowhere"], "no such commit"),
        (["--against", "-x"], "no name of a commit"),
        (
            ["--baseline", "gate.json"],
            "gate.json: no such baseline; write it with `perfaudit gate init --baseline gate.json`",
        ),
        (["--against", "main", "--layers", "speed"], "'speed' is no layer of the gate"),
        (["--against", "main", "--layers", "speed", "--layers", "findings"], "'speed' is no layer of the gate"),
        (["--against", "main", "--max-regression", "5"], "'5' is no percentage"),
        (["--against", "main", "--tolerate", "9%"], "--tolerate must be below --max-regression"),
        (["--against", "main", "--inconclusive", "maybe"], "'maybe' is neither pass nor fail"),
        (["--against", "main", "--report", "gate.md"], "--report gate.md: write FORMAT=FILE"),
        (["--against", "main", "--report", "concise=x"], "write FORMAT=FILE with a format of text, json"),
        (["--against", "main", "-o", "net.py"], "would replace source code"),
        (["--against", "main", "--layers", "counters"], "defines factories"),
        (["nope.py", "--against", "main", "--layers", "findings"], "nope.py: no such file"),
        (["--against", "main", "../other.py"], "no such file"),
        (["--against", "main", "--resume", "--no-history"], "--resume goes on with what is kept of a gate"),
        (
            ["--against", "main", "--resume", "--layers", "findings"],
            "--resume goes on with what was timed against a commit",
        ),
        (["--self-test", "--layers", "findings"], "--self-test is about counters and time"),
        (["--self-test"], "--self-test needs a target"),
        (["--self-test", "--against", "main"], "leave --against and --baseline out"),
        (["--against", "main", "--runs", "3"], "--runs is how many gates --self-test makes"),
        (["update"], "name the reason"),
        (["update", "--accept", "why"], "no finding and no target here that could be accepted"),
        (["init", "--ci", "jenkins", "--path", "."], "--ci jenkins"),
    ],
)
def test_wrong_use_is_named(repository: Path, perfaudit: Run, arguments: list[str], words: str) -> None:
    done = perfaudit("gate", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err.replace("\n", " ")


@pytest.mark.parametrize("content", ["", "{", '{"schema": "perfaudit.gate/1"}', '{"schema": "perfaudit.gate/9"}', "[]"])
def test_a_damaged_baseline_is_no_pass(repository: Path, perfaudit: Run, content: str) -> None:
    (repository / "perfaudit-gate.json").write_text(content)
    done = perfaudit("gate", "--layers", "findings")
    assert (done.code, done.out) == (2, "")
    assert "perfaudit-gate.json" in done.err


def test_the_output_says_where_the_gate_is_kept(repository: Path, perfaudit: Run) -> None:
    kept = "kept in .perfaudit/gate.sqlite"
    done = perfaudit("gate", "--against", "main", "--layers", "findings")
    assert kept in done.out and (repository / ".perfaudit/gate.sqlite").is_file()
    status = subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True, text=True)
    assert status.stdout == ""
    assert kept not in perfaudit("gate", "--against", "main", "--layers", "findings", "--no-history").out


def test_a_new_finding_fails_with_its_line(repository: Path, perfaudit: Run) -> None:
    assert perfaudit("gate", "--against", "main", "--layers", "findings").code == 0
    (repository / "net.py").write_text(SLOW)
    done = perfaudit(
        "gate", "--against", "main", "--layers", "findings", "--format", "json", "--report", "github=notes"
    )
    report = json.loads(done.out)
    assert done.code == 1
    assert (report["gate"]["verdict"], report["gate"]["fails"]) == ("regressed", True)
    assert [(f["rule"], f["path"], f["line"]) for f in report["findings"]] == [("PA501", "net.py", 2)]
    assert report["gate"]["notes"] == ["not committed: 1 changed file; the code is judged as it is here"]
    assert "file=net.py,line=2" in (repository / "notes").read_text()
    assert perfaudit("gate", "--against", "main", "--layers", "findings", "--exit-zero").code == 0


def test_a_baseline_without_targets_is_written_read_and_renewed(repository: Path, perfaudit: Run) -> None:
    done = perfaudit("gate", "init", "--ci", "plain")
    assert (done.code, "perfaudit gate --against origin/main" in done.out) == (0, True)
    assert "0 findings, 0 targets; commit it" in done.err
    assert "no target: no file here defines factories, so counters are not kept" in done.err
    assert "is there already" in perfaudit("gate", "init").err
    assert perfaudit("gate", "--layers", "findings").code == 0
    (repository / "net.py").write_text(SLOW)
    assert perfaudit("gate", "--layers", "findings").code == 1
    done = perfaudit("gate", "update", "--accept", "we look for a NaN")
    assert (done.code, "1 change accepted" in done.err) == (0, True)
    assert perfaudit("gate", "--layers", "findings").code == 0
    commit("looks for a NaN")
    done = perfaudit("gate", "--against", "HEAD~1", "--layers", "findings")
    assert (done.code, "we look for a NaN" in done.out) == (0, True)
    assert "nothing changed" in perfaudit("gate", "update", "--accept", "again").err


def test_the_first_layer_does_not_import_what_it_reads(repository: Path, perfaudit: Run) -> None:
    (repository / "net.py").write_text("import torch, pathlib\npathlib.Path('ran').touch()\n")
    assert perfaudit("gate", "--against", "main", "--layers", "findings").code == 0
    assert not (repository / "ran").exists()
    code = (
        "import sys; sys.argv = ['perfaudit', 'gate', '--against', 'main', '--layers', 'findings']\n"
        "from perfaudit.cli.entry import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'pandas', 'numpy', 'rich') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


LINKS = """[tool.perfaudit]
rules = ["mine"]
[tool.perfaudit.gate]
link = ["mine", "loop.py", "pyproject.toml"]
"""


@pytest.mark.parametrize("layers", ["findings", "findings,counters"])
def test_what_a_change_links_is_neither_run_as_a_rule_nor_known(repository: Path, perfaudit: Run, layers: str) -> None:
    """The settings are those of the change: linked into the reference before the scan, its files would be the reference's."""
    (repository / "train.py").write_text(TARGET)
    commit("a target")
    (repository / "mine").mkdir()
    (repository / "mine" / "XY001-no-such-thing.toml").write_text(OWN_RULE)
    (repository / "mine" / "no_such_thing.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    (repository / "loop.py").write_text(SLOW)
    (repository / "pyproject.toml").write_text(LINKS)
    done = perfaudit("gate", "--against", "main", "--layers", layers, "--format", "json")
    report = json.loads(done.out)
    assert [(f["rule"], f["path"]) for f in report["findings"]] == [("PA501", "loop.py")]
    assert (done.code, (repository / "ran").exists()) == (1, False)
    assert "rules of mine/ are not run: this change adds or edits them" in done.out


def test_nothing_to_look_at_is_no_pass(repository: Path, perfaudit: Run) -> None:
    (repository / "net.py").unlink()
    done = perfaudit("gate", "--against", "main", "--layers", "findings", "--format", "json")
    judged = json.loads(done.out)["gate"]
    assert (done.code, judged["verdict"], judged["fails"]) == (3, "not_judged", True)


def test_without_a_target_two_layers_are_said_to_be_missing(repository: Path, perfaudit: Run) -> None:
    done = perfaudit("gate", "--against", "main", "--format", "json")
    (note, *_) = [note for note in json.loads(done.out)["gate"]["notes"] if note.startswith("no target")]
    assert (done.code, note) == (0, "no target: no file here defines factories, so counters and time are not judged")


def test_a_target_that_only_the_reference_has_is_no_pass(repository: Path, perfaudit: Run) -> None:
    (repository / "train.py").write_text(TARGET)
    commit("a target")
    (repository / "train.py").write_text(
        TARGET.replace("build_model", "network").replace("build_dataloader", "batches")
    )
    done = perfaudit("gate", "--against", "main", "--format", "json")
    (counted,) = json.loads(done.out)["gate"]["counters"]
    assert (done.code, counted["target"], counted["verdict"]) == (3, "train.py", "failed")
    assert json.loads(done.out)["gate"]["fails"]
    assert counted["reason"].endswith("defines factories there, and no file here does")


def test_targets_of_the_project_file_are_relative_to_it(
    repository: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "pyproject.toml").write_text('[tool.perfaudit.gate]\ntargets = ["train.py"]\n')
    (repository / "below").mkdir()
    monkeypatch.chdir(repository / "below")
    done = perfaudit("gate", "--against", "main")
    assert (done.code, "targets of [tool.perfaudit.gate] are relative to its folder" in done.err) == (2, True)


@pytest.mark.slow
def test_a_new_target_passes_and_a_broken_reference_does_not(repository: Path, perfaudit: Run) -> None:
    (repository / "train.py").write_text(TARGET)
    done = perfaudit("gate", "train.py", "--against", "main", "--layers", "counters")
    assert (done.code, "new: main" in done.out.replace("\n  ", " ")) == (0, True)
    (repository / "train.py").write_text("import nothing_that_exists\n" + TARGET)
    commit("broken")
    (repository / "train.py").write_text(TARGET)
    done = perfaudit("gate", "train.py", "--against", "main", "--layers", "counters")
    assert (done.code, "nothing_that_exists" in done.out) == (3, True)
    (repository / "train.py").write_text("def f(:\n" + TARGET)
    commit("no Python")
    (repository / "train.py").write_text(TARGET)
    done = perfaudit("gate", "train.py", "--against", "main", "--layers", "counters")
    assert (done.code, "the reference does not run" in done.out) == (3, True)


@pytest.mark.slow
def test_a_new_target_is_run_where_only_times_are_asked_for(repository: Path, perfaudit: Run) -> None:
    times = ("new.py", "--against", "main", "--layers", "time")
    (repository / "new.py").write_text(TARGET)
    done = perfaudit("gate", *times)
    assert (done.code, "new: main" in done.out.replace("\n  ", " ")) == (0, True)
    (repository / "new.py").write_text(TARGET.replace("nn.Linear(8, 2)", "nn.Linear(9, 2)"))
    done = perfaudit("gate", *times)
    assert (done.code, "your code does not run" in done.out) == (3, True)


@pytest.mark.slow
def test_a_target_that_moved_is_new_and_a_note_says_what_is_not_compared(repository: Path, perfaudit: Run) -> None:
    (repository / "train.py").write_text(TARGET)
    commit("a target")
    (repository / "train.py").rename(repository / "main.py")
    done = perfaudit("gate", "main.py", "--against", "main", "--layers", "counters", "--format", "json")
    notes = json.loads(done.out)["gate"]["notes"]
    (note,) = [note for note in notes if note.startswith("train.py: a target in main")]
    assert (done.code, note.endswith("and none here, so nothing is compared with it")) == (0, True)


@pytest.mark.slow
def test_a_target_under_another_name_is_compared_with_what_it_was(repository: Path, perfaudit: Run) -> None:
    (repository / "train.py").write_text(TARGET)
    commit("a target")
    (repository / "jobs").mkdir()
    git("mv", "train.py", "jobs/main.py")
    asked = (
        "gate",
        "jobs/main.py",
        "--against",
        "main",
        "--layers",
        "counters,time",
        "--budget",
        "1s",
        "--format",
        "json",
    )
    done = perfaudit(*asked)
    gate = json.loads(done.out)["gate"]
    assert (done.code, gate["counters"][0]["verdict"]) == (0, "pass")
    assert gate["times"][0]["verdict"] in ("pass", "inconclusive", "improved"), gate["times"]
    assert any(note.startswith("jobs/main.py was train.py in main (") for note in gate["notes"])
    assert not any("nothing is compared with it" in note for note in gate["notes"])
    dearer = TARGET.replace("nn.Linear(8, 2)", "nn.Linear(8, 9)")
    (repository / "jobs" / "main.py").write_text(dearer)
    done = perfaudit(*asked)
    (counters,) = json.loads(done.out)["gate"]["counters"]
    assert (done.code, counters["verdict"], counters["target"]) == (0, "inconclusive", "jobs/main.py")
    assert "train.py, of which 9" in counters["reason"] and "may have been another training" in counters["reason"]
    assert any(change["counter"] == "flops" for change in counters["changes"])


@pytest.mark.slow
def test_sigterm_removes_the_worktree_and_prints_what_is_known(repository: Path) -> None:
    (repository / "train.py").write_text(TARGET.replace("8, 2)", "8, 2)\n\n\nimport time\ntime.sleep(600)"))
    commit("sleeps")
    process = subprocess.Popen(
        [*PERFAUDIT, "gate", "train.py", "--against", "main", "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if "counting a step" in line:
            break
    (worktree,) = worktrees()[1:]
    assert worktree.is_dir()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    report = json.loads(out)
    assert process.returncode == 130
    assert (report["interrupted"], report["gate"]["findings"]["verdict"]) == (True, "pass")
    assert any(note.startswith("interrupted before ") for note in report["gate"]["notes"])
    assert report["gate"]["verdict"] == "failed"  # what was not looked at is no pass
    assert len(worktrees()) == 1
    assert not worktree.exists()


def worktrees() -> list[Path]:
    done = subprocess.run(["git", "worktree", "list", "--porcelain"], capture_output=True, text=True, check=True)
    return [Path(line.removeprefix("worktree ")) for line in done.stdout.splitlines() if line.startswith("worktree ")]
