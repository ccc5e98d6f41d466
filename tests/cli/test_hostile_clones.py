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

pytestmark = pytest.mark.usefixtures("in_this_process")

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


def test_nothing_is_swept_behind_a_link_out_of_the_project(clone: Path, perfaudit: Run) -> None:
    """A file there that is called as what a killed run leaves, and is the user's all the same."""
    from perfaudit.files import temporary

    (clone / "folder").symlink_to("../mine")
    word = "0" * 12
    left = clone.parent / "mine" / f".mine.py.perfaudit-new-{word}-{temporary._sign('new', 'mine.py', word)}"
    left.write_text("precious")
    perfaudit("scan", "folder", "--fix")
    perfaudit("scan", "folder/mine.py", "--fix")
    assert left.read_text() == "precious"


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


# ---- what was measured, below .perfaudit ---------------------------------------------------------------------------------


def gate_row(clone: Path) -> str:
    from perfaudit.gate import store
    from perfaudit.measurements import Environment
    from perfaudit.verdicts import Gate

    here = Environment("cpu", "3.11.4", "Linux x86_64", 2, 8 << 30)
    return store.append(clone, Gate("main", "ref", "pass", "a" * 40), "b" * 12, here)


NAMES = ["gate.sqlite", "gate.sqlite-journal", "gate.sqlite-wal", "gate.sqlite-shm", "gate.lock", ".gitignore", "runs"]


@pytest.mark.parametrize("name", [*NAMES, "measuring.lock", ""])
@pytest.mark.parametrize("target", ["precious.txt", "new", "ab", "pipe", "second name"])
def test_what_was_measured_is_kept_behind_no_link(clone: Path, name: str, target: str) -> None:
    """Whatever has the name of a file of perfaudit's own: the gate and the journal leave it, and say where they fail."""
    from perfaudit.measure.folder import measuring
    from perfaudit.measure.journal import Journal

    place = clone / ".perfaudit" / name if name else clone / ".perfaudit"
    place.parent.mkdir(exist_ok=True)
    if target == "pipe":
        os.mkfifo(place)
    elif target == "second name":
        place.hardlink_to(clone.parent / "mine" / "precious.txt")
    else:
        place.symlink_to(f"{clone.parent}/mine/{target}")
    for _ in range(2):
        gate_row(clone)
        with measuring(clone):
            journal = Journal.create(clone, {"command": "tune"})
            journal.append("trial", n=1)
    assert is_untouched(clone)
    assert os.path.lexists(place)
    if name in ("runs", ""):
        assert "not written: " in journal.trouble


def test_a_link_among_the_runs_is_none(clone: Path) -> None:
    from perfaudit.errors import UserError
    from perfaudit.measure.journal import Journal, all_runs, latest_unfinished

    journal = Journal.create(clone, {"command": "tune"})
    assert journal.path is not None
    theirs = clone.parent / "mine" / "run.jsonl"
    journal.path.rename(theirs)
    text = theirs.read_text()
    journal.path.symlink_to(theirs)
    assert (all_runs(clone), latest_unfinished(clone)) == ([], None)
    resumed = Journal.resume(journal.path)  # named
    resumed.append("trial", n=1)
    assert "is a link, and nothing is written through a link inside a project" in resumed.trouble
    assert theirs.read_text() == text
    theirs.unlink()
    (clone / ".perfaudit").rename(clone.parent / "elsewhere")
    (clone / ".perfaudit").symlink_to("../elsewhere")
    with pytest.raises(UserError, match="is a link, not a folder of perfaudit's own"):
        all_runs(clone)


def test_a_journal_of_sqlite_that_names_a_file_to_delete(clone: Path) -> None:
    """A rollback journal may name a second one, which SQLite deletes once it has played the first: any file at all."""
    import sqlite3

    precious = clone.parent / "mine" / "precious.txt"
    assert gate_row(clone) == ""
    database = clone / ".perfaudit" / "gate.sqlite"
    pages = database.stat().st_size // 4096
    page = database.read_bytes()[:4096]
    magic = bytes.fromhex("d9d505f920a163d7")
    nonce = 7
    sum_ = nonce + sum(page[i] for i in range(4096 - 200, 0, -200))
    header = magic + b"".join(n.to_bytes(4) for n in (1, nonce, pages, 512, 4096))
    name = str(precious).encode()
    tail = name + len(name).to_bytes(4) + sum(name).to_bytes(4) + magic
    last = (1 << 30) // 4096 + 1  # the page that SQLite locks stands for the name
    data = header.ljust(512, b"\0") + (1).to_bytes(4) + page + sum_.to_bytes(4) + last.to_bytes(4) + tail
    (clone / ".perfaudit" / "gate.sqlite-journal").write_bytes(data)
    assert gate_row(clone) == ""
    assert is_untouched(clone)

    connection = sqlite3.connect(database)  # what is guarded against, so that this test stays one
    connection.execute("SELECT count(*) FROM runs").fetchone()
    connection.close()
    assert not precious.exists()


@pytest.mark.parametrize(
    "made", ["CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END", "CREATE VIEW v AS SELECT 1"]
)
def test_a_history_with_code_in_it_is_not_used(clone: Path, made: str) -> None:
    import sqlite3

    gate_row(clone)
    connection = sqlite3.connect(clone / ".perfaudit" / "gate.sqlite")
    connection.execute(made)
    connection.commit()
    connection.close()
    assert gate_row(clone).endswith("it holds views or triggers, which no history of perfaudit does")
