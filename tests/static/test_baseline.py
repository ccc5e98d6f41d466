"""Baselines: what is known stays silent when lines move, what is new does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("in_this_process")

Project = Callable[..., Path]
Run = Callable[..., Any]
TRAIN = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"


def test_known_new_and_gone(project: Project, perfaudit: Run) -> None:
    folder = project(**{"train.py": TRAIN})
    scan = ("scan", ".", "--select", "PA501", "--baseline", "known.json")
    assert perfaudit(*scan, "--update-baseline").code == 0
    first = (folder / "known.json").read_text()
    entry = json.loads(first)["findings"][0]
    assert (entry["path"], entry["rule"], json.loads(first)["schema"]) == ("train.py", "PA501", "perfaudit.baseline/1")
    assert perfaudit(*scan).code == 0

    (folder / "train.py").write_text("# moved\n\n" + TRAIN.replace("(True)", "( True )"))
    assert perfaudit(*scan).code == 0  # lines and white space

    (folder / "train.py").write_text(TRAIN + "torch.autograd.set_detect_anomaly(True)\n")
    done = perfaudit(*scan, "--format", "json")
    assert done.code == 1
    assert [finding["line"] for finding in json.loads(done.out)["findings"]] == [3]
    assert json.loads(done.out)["baseline"] == {"known": 1, "gone": 0}

    (folder / "train.py").write_text("import torch\n")
    assert json.loads(perfaudit(*scan, "--format", "json").out)["baseline"] == {"known": 0, "gone": 1}


def test_what_a_scan_does_not_look_at_stays_known(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a/x.py": TRAIN, "b/y.py": TRAIN})
    perfaudit("scan", ".", "--select", "PA501", "--baseline", "k.json", "--update-baseline")
    perfaudit("scan", "a", "--select", "PA501", "--baseline", "k.json", "--update-baseline")
    assert [entry["path"] for entry in json.loads((folder / "k.json").read_text())["findings"]] == ["a/x.py", "b/y.py"]
    done = perfaudit("scan", "a", "--select", "PA501", "--baseline", "k.json", "--format", "json")
    assert json.loads(done.out)["baseline"] == {"known": 1, "gone": 0}


BROKEN = TRAIN + "print 1\n"


@pytest.mark.parametrize("place", ["b.py", "."])
def test_what_is_known_of_a_file_that_cannot_be_read_stays(project: Project, perfaudit: Run, place: str) -> None:
    folder = project(**{"a.py": TRAIN, "b.py": TRAIN, "c.py": TRAIN})
    scan = ("scan", "a.py", "c.py", place, "--select", "PA501", "--baseline", "k.json")
    perfaudit(*scan, "--update-baseline")
    (folder / "b.py").write_text(BROKEN)
    (folder / "c.py").write_text("import torch\n")
    assert json.loads(perfaudit(*scan, "--format", "json").out)["baseline"] == {"known": 1, "gone": 1}
    done = perfaudit(*scan, "--update-baseline")
    assert "k.json: 1 finding accepted, 1 kept of files that could not be read\n" in done.err
    assert [entry["path"] for entry in json.loads((folder / "k.json").read_text())["findings"]] == ["a.py", "b.py"]
    (folder / "b.py").write_text("import torch\n")
    assert "1 finding accepted\n" in perfaudit(*scan, "--update-baseline").err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "k.json: no such baseline; write it with --update-baseline"),
        ("{", "k.json: a damaged baseline: "),
        ("[]", "k.json: not a baseline of perfaudit, whose schema is perfaudit.baseline/1; write one"),
        ('{"schema": "perfaudit.baseline/2"}', "k.json: made by another version of perfaudit (perfaudit.baseline/2)"),
        ('{"schema": "perfaudit.baseline/1"}', "k.json: a damaged baseline: findings is missing"),
        (
            '{"schema": "perfaudit.baseline/1", "findings": [{"path": "x"}]}',
            "k.json: a damaged baseline: findings[0].rule is missing",
        ),
        (
            '{"schema": "perfaudit.baseline/1", "findings": [{"path": 1, "rule": "", "digest": "", "message": ""}]}',
            "k.json: a damaged baseline: findings[0].path must be a string",
        ),
    ],
)
def test_a_baseline_that_is_wrong_is_never_a_pass(
    project: Project, perfaudit: Run, text: str | None, problem: str
) -> None:
    folder = project(**{"train.py": TRAIN})
    if text is not None:
        (folder / "k.json").write_text(text)
    done = perfaudit("scan", ".", "--baseline", "k.json")
    assert (done.code, done.err.startswith(f"perfaudit: {problem}")) == (2, True), done.err


def test_it_may_be_read_from_another_folder(project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**{"sub/a.py": TRAIN})
    monkeypatch.chdir(folder / "sub")
    assert perfaudit("scan", ".", "--select", "PA501", "--baseline", "k.json", "--update-baseline").code == 0
    monkeypatch.chdir(folder)
    assert perfaudit("scan", "sub", "--select", "PA501", "--baseline", "sub/k.json").code == 0


def test_a_file_that_moved_is_known(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": TRAIN})
    scan = ("scan", ".", "--select", "PA501", "--baseline", "k.json")
    perfaudit(*scan, "--update-baseline")
    (folder / "a.py").rename(folder / "b.py")
    done = perfaudit(*scan, "--format", "json")
    assert (done.code, json.loads(done.out)["baseline"]) == (0, {"known": 1, "gone": 0})
    (folder / "a.py").write_text(TRAIN)  # a copy is no move
    assert perfaudit(*scan).code == 1


def test_updating_keeps_what_is_less_severe(project: Project, perfaudit: Run) -> None:
    project(**{"a.py": TRAIN + "x = torch.utils.data.DataLoader(d)\n"})
    scan = ("scan", ".", "--select", "PA501,PA101", "--baseline", "k.json")
    assert perfaudit(*scan, "--severity", "error", "--update-baseline").code == 0
    assert perfaudit(*scan).code == 0
