"""What a clone brings along leads no command to write or delete anything outside of it, nor in a folder of git."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

Run = Callable[..., Done]
ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
FIXED = "import torch\ntorch.autograd.set_detect_anomaly(False)\n"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, which is the working directory, with a file that --fix would change; beside it what is the user's."""
    (tmp_path / "clone" / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "clone" / "a.py").write_text(ANOMALY)
    (tmp_path / "mine" / "ab").mkdir(parents=True)
    for name in ("mine.py", "ab/old.json", "precious.txt"):
        (tmp_path / "mine" / name).write_text(ANOMALY)
        os.utime(tmp_path / "mine" / name, (0, 0))
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path / "clone"


def is_untouched(clone: Path) -> bool:
    mine = clone.parent / "mine"
    found = {path.relative_to(mine).as_posix(): path for path in mine.rglob("*") if not path.is_dir()}
    return sorted(found) == ["ab/old.json", "mine.py", "precious.txt"] and all(
        path.read_text() == ANOMALY and path.stat().st_mtime == 0 for path in found.values()
    )


# What lies in the clone, and where it leads; the files of perfaudit's own that could be reached through it.
LINKS = [
    {".perfaudit_cache": "../mine"},
    {".cache": "../mine", "scan": "../mine", "perfaudit": "../mine"},
    {".perfaudit": "../mine"},
    {"report.json": "../mine/precious.txt"},
    {"report.json": "../mine/new.json"},
    {"out": "../mine"},
    {"out": "way", "way": "../mine"},
]


@pytest.mark.parametrize("links", LINKS, ids=str)
def test_a_scan_reaches_nothing_through_a_link(clone: Path, perfaudit: Run, links: dict[str, str]) -> None:
    for name, target in links.items():
        (clone / name).symlink_to(target)
    for options in (
        ["--exit-zero"],
        ["-o", "report.json", "--format", "json"],
        ["-o", "out/precious.txt"],
        ["--baseline", "report.json", "--update-baseline"],
        ["--baseline", "out/known.json", "--update-baseline"],
        ["--fix"],
    ):
        perfaudit("scan", ".", *options)
        assert is_untouched(clone)


def test_what_is_refused_is_said(clone: Path, perfaudit: Run) -> None:
    (clone / "out").symlink_to("../mine")
    done = perfaudit("scan", "a.py", "-o", "out/report.json")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"perfaudit: out/report.json: not written: {clone}/out is a link, and nothing is written through a link inside a "
        f"project; name the file it leads to: {clone.parent}/mine/report.json\n"
    )


@pytest.mark.parametrize("name", ["link.py", "folder/mine.py"])
def test_a_source_behind_a_link_out_of_the_project_is_not_fixed(clone: Path, perfaudit: Run, name: str) -> None:
    (clone / "link.py").symlink_to("../mine/mine.py")
    (clone / "folder").symlink_to("../mine")
    done = perfaudit("scan", name, "--fix")
    assert (done.code, is_untouched(clone)) == (2, True)
    assert "is a link that leads out of the project" in done.err


@pytest.mark.parametrize("name", [".git/hooks/x.py", "way/x.py", "sub/.GIT/x.py"])
def test_nothing_is_fixed_in_a_folder_of_git(clone: Path, perfaudit: Run, name: str) -> None:
    (clone / "way").symlink_to(".git/hooks")
    (clone / name).parent.mkdir(parents=True, exist_ok=True)
    (clone / name).write_text(ANOMALY)
    for options in (["--fix"], ["--fix", "--unsafe-fixes"]):
        done = perfaudit("scan", name, *options)
        assert (done.code, (clone / name).read_text()) == (2, ANOMALY)
        assert "a folder of git, where perfaudit writes nothing" in done.err


@pytest.mark.parametrize("name", [".git/hooks/x.py", "way/x.py", "link.py"])
def test_nothing_is_applied_in_a_folder_of_git_or_out_of_the_project(clone: Path, perfaudit: Run, name: str) -> None:
    (clone / "way").symlink_to(".git/hooks")
    (clone / "link.py").symlink_to("../mine/mine.py")
    if name != "link.py":
        (clone / name).write_text(ANOMALY)
    report = json.loads(perfaudit("scan", "a.py", "--format", "json").out)
    text = json.dumps(report).replace("a.py", name)
    (clone.parent / "report.json").write_text(text)
    done = perfaudit("apply", "../report.json")
    assert (done.code, is_untouched(clone), (clone / name).read_text()) == (2, True, ANOMALY)
    assert "nothing was written" in done.err


def test_a_baseline_that_the_project_has_set_stays_in_it(clone: Path, perfaudit: Run) -> None:
    (clone / "pyproject.toml").write_text('[tool.perfaudit.gate]\nbaseline = "../mine/precious.txt"\n')
    done = perfaudit("gate", "init", "--force")
    assert (done.code, is_untouched(clone)) == (2, True)
    assert "leads out of the project; name such a file on the command line: --baseline" in done.err


KILLED = """
import os, signal, sys
os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
from perfaudit.cli import main
sys.argv = ["perfaudit", "scan", "a.py", "--fix", "--no-cache"]
main()
"""


def test_what_a_killed_fix_left_is_gone_after_the_next(clone: Path, perfaudit: Run) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED]).returncode == -signal.SIGKILL
    assert len(list(clone.iterdir())) == 3
    assert (clone / "a.py").read_text() == ANOMALY
    assert perfaudit("scan", "a.py", "--fix").err == "a.py: 1 fixed\n"
    assert sorted(path.name for path in clone.iterdir()) == [".git", "a.py"]
    assert (clone / "a.py").read_text() == FIXED
