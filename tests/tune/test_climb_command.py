"""`perfaudit tune --all` on a small training, as a user types it: the patch that is handed over is the one that was measured."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served_nursery import PERFAUDIT

from perfaudit.measure.journal import all_runs

pytestmark = pytest.mark.slow

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.autograd.set_detect_anomaly(True)  # twice the time of a step
torch.set_num_threads(1)  # two that wait for each other take ten times as long beside another program


def build_model():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(96, 3, 8, 8), torch.randint(0, 3, (96,))), batch_size=8)
"""


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder in which a climb has written its patch into train.py and into plan.patch, and its report."""
    folder = tmp_path_factory.mktemp("climbed")
    (folder / "train.py").write_text(TRAIN)
    for budget in ("18s", "120s"):  # a machine that does other work needs more for a step that takes half the time
        command = f"tune train.py --all --allow safe --budget {budget} --apply --out plan.patch"
        done = subprocess.run(
            [*PERFAUDIT, *command.split(), "--format", "json", "--output", "report.json"],
            cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            break
    assert done.returncode == 1, done.stderr
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return folder, report


def test_the_ladder_of_a_real_training(climbed: tuple[Path, dict[str, Any]]) -> None:
    _, report = climbed
    ladder = report["ladder"]
    assert "anomaly" in [rung["knob"] for rung in ladder["rungs"] if not rung["dropped"]]
    assert all(rung["changes"] == [] for rung in ladder["rungs"])  # nothing but speed, as --allow safe has it
    assert "to the bit" in ladder["verified"]
    assert ladder["high"] < 1
    left = {item["knob"]: item["reason"] for item in ladder["left"]}
    assert left["optimizer"] == "it changes rounding; allow that with --allow rounding"


def test_the_report_says_in_which_file_the_run_is_kept(climbed: tuple[Path, dict[str, Any]]) -> None:
    folder, report = climbed
    assert report["kept_in"].startswith(".perfaudit/runs/") and (folder / report["kept_in"]).is_file()


def test_what_is_applied_is_what_was_measured(climbed: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, _ = climbed
    text = (folder / "train.py").read_text()
    assert "torch.autograd.set_detect_anomaly(False)  # twice the time of a step" in text
    if shutil.which("git") is None:
        pytest.skip("no git here")
    (tmp_path / "train.py").write_text(TRAIN)
    subprocess.run(["git", "apply", str(folder / "plan.patch")], cwd=tmp_path, check=True)
    assert (tmp_path / "train.py").read_text() == text


def test_a_saved_report_patches_a_fresh_copy(
    climbed: tuple[Path, dict[str, Any]], project: Callable[..., Path], perfaudit: Callable[..., Any]
) -> None:
    folder, _ = climbed
    project()
    Path("train.py").write_text(TRAIN)
    assert perfaudit("apply", str(folder / "report.json")).code == 0
    assert Path("train.py").read_text() == (folder / "train.py").read_text()
    Path("train.py").write_text(TRAIN + "# edited\n")
    done = perfaudit("apply", str(folder / "report.json"))
    assert (done.code, "changed since" in done.err) == (2, True)


def test_the_history_of_a_killed_climb_shows_what_was_compared(
    project: Callable[..., Path], perfaudit: Callable[..., Any]
) -> None:
    here = project(**{"train.py": TRAIN})
    command = [*PERFAUDIT, "tune", "train.py", "--anomaly", "--allow", "safe", "--budget", "200s"]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + 120
        while not any('"kind": "comparison"' in path.read_text() for path in here.glob(".perfaudit/runs/*.jsonl")):
            assert time.monotonic() < ends and started.poll() is None
            time.sleep(0.1)
    finally:
        started.kill()
        started.wait(30)
    (run,) = all_runs(here)
    done = perfaudit("history", run.id)
    assert (done.code, run.status) == (0, "unfinished")
    assert "raced in one training, time against your code as it is" in done.out
    assert "no trial was finished" not in done.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--all -o train.py", "train.py: would replace source code"),
        ("--all -o link.txt", "link.txt is a link"),
        ("--all --out train.py", "--out train.py: that is no place for a patch"),
        ("--all --out link.txt", "link.txt is a link"),
        ("--all -o folder", "folder: is a folder"),
        ("--all --out folder", "folder: is a folder"),
        ("--all --allow safe,rng", "`safe` allows nothing besides speed"),
        ("--all --allow safe --allow rng", "`safe` allows nothing besides speed"),
        ("--all --allow nonsense", "--allow nonsense: patches change rounding, precision,"),
        ("--all --allow nonsense --allow rng", "--allow nonsense: patches change rounding, precision,"),
    ],
)
def test_what_could_go_wrong_later_is_refused_before_anything_is_measured(
    options: str, words: str, project: Callable[..., Path], perfaudit: Callable[..., Any]
) -> None:
    here = project(**{"train.py": TRAIN})
    (here / "folder").mkdir()
    (here / "link.txt").symlink_to("train.py")
    done = perfaudit("tune", "train.py", *options.split())
    assert (done.code, words in done.err) == (2, True), done.err
    assert "build_model" in (here / "train.py").read_text()
    assert not (here / ".perfaudit").exists()


def test_a_target_outside_the_folder_is_not_climbed(
    project: Callable[..., Path], perfaudit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = project(**{"train.py": TRAIN})
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    done = perfaudit("tune", "../train.py", "--all")
    assert (done.code, "lies outside this folder" in done.err) == (2, True), done.err
