"""The cache gives what a scan would give, or nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.report import Report
from perfaudit.static import scan as scanning
from perfaudit.static.cache import FOLDER
from perfaudit.static.scan import Options, scan

Project = Callable[..., Path]
TRAIN = """
    import torch
    from data import Loader
    torch.autograd.set_detect_anomaly(True)
    for batch in Loader(ds):
        batch.cuda()
"""
DATA = "from torch.utils.data import DataLoader\nclass Loader(DataLoader): pass\n"


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files that were really audited."""
    done: list[str] = []
    real = scanning.audit_file

    def counting(path: Path, *rest: object) -> object:
        done.append(path.name)
        return real(path, *rest)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(scanning, "audit_file", counting)
    return done


def scanned(folder: Path, **options: object) -> Report:
    return scan([str(folder)], Options(cache=folder, **options))  # type: ignore[arg-type]  # names are checked at run time


def rules(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings}


def test_the_second_scan_reads_results(project: Project, audits: list[str]) -> None:
    folder = project(**{"train.py": TRAIN, "data.py": DATA, "bad.py": "import torch\nx = ("})
    first = scanned(folder)
    assert sorted(audits) == ["bad.py", "data.py", "train.py"]
    assert {"PA101", "PA501"} <= rules(first)
    audits.clear()
    assert scanned(folder) == first
    assert audits == ["bad.py"]  # what could not be audited is tried again


@pytest.mark.parametrize(
    ("name", "text", "audited"),
    [
        ("train.py", "import torch\n", ["train.py"]),
        (
            "data.py",
            "class Loader: pass\n",
            ["train.py"],
        ),  # a neighbour decides what `Loader` is; data.py lacks torch now
        ("other.py", "x = 1\n", []),  # no name of train.py leads there
    ],
)
def test_what_changed_is_audited_again(
    project: Project, audits: list[str], name: str, text: str, audited: list[str]
) -> None:
    folder = project(**{"train.py": TRAIN, "data.py": DATA})
    scanned(folder)
    audits.clear()
    (folder / name).write_text(text)
    after = scanned(folder)
    assert audits == audited
    assert after == scan([str(folder)])


def test_other_rules_are_another_entry(project: Project, audits: list[str]) -> None:
    folder = project(**{"train.py": TRAIN, "data.py": DATA})
    assert rules(scanned(folder, selected=frozenset({"PA501"}))) == {"PA501"}
    assert "PA101" in rules(scanned(folder))


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"depends": {}}', b"\xff\xfe", b'{"findings": 3}', b"[" * 99999]
)
def test_damaged_entries_are_passed_over(project: Project, damage: bytes) -> None:
    folder = project(**{"train.py": TRAIN, "data.py": DATA})
    first = scanned(folder)
    for entry in (folder / FOLDER).glob("??/*.json"):
        entry.write_bytes(damage)
    assert scanned(folder) == first


def test_a_folder_that_cannot_be_written(project: Project) -> None:
    folder = project(**{"train.py": TRAIN, "data.py": DATA, FOLDER: "a file of that name"})
    assert "PA101" in rules(scanned(folder))


def test_the_folder_keeps_out_of_version_control(project: Project) -> None:
    folder = project(**{"train.py": TRAIN})
    scanned(folder)
    assert (folder / FOLDER / ".gitignore").read_text() == "*\n"
    assert (folder / FOLDER / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def test_old_entries_go(project: Project) -> None:
    import os

    folder = project(**{"train.py": TRAIN})
    scanned(folder)
    (entry,) = (folder / FOLDER).glob("??/*.json")
    os.utime(entry, (0, 0))
    (folder / FOLDER / "swept").unlink()
    (folder / "train.py").write_text("import torch\n")
    scanned(folder)
    assert not entry.exists()


def test_scans_at_the_same_time(project: Project) -> None:
    folder = project(**{f"m{n}.py": TRAIN for n in range(30)}, **{"data.py": DATA})
    command = [sys.executable, "-m", "perfaudit", "scan", ".", "--format", "json", "--exit-zero"]
    running = [subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) for _ in range(3)]
    texts = [process.communicate()[0] for process in running]
    assert len(set(texts)) == 1
    assert len(json.loads(texts[0])["findings"]) >= 60


def test_a_module_that_comes_later_counts(project: Project) -> None:
    folder = project(
        **{"pyproject.toml": "", "pkg/train.py": "import torch\nfrom data import Loader\nl = Loader(ds)\n"}
    )
    options = Options(cache=folder)
    assert rules(scan(["pkg/train.py"], options)) == set()
    (folder / "pkg" / "data.py").write_text(DATA)
    assert rules(scan(["pkg/train.py"], options)) == {"PA101"}
    (folder / "pkg" / "data.py").unlink()
    assert rules(scan(["pkg/train.py"], options)) == set()


def test_a_changed_rule_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfaudit.static import cache

    (tmp_path / "a.toml").write_text("1")
    monkeypatch.setattr(cache, "rules_folder", lambda: tmp_path)
    cache._program_digest.cache_clear()
    before = cache._program_digest()
    (tmp_path / "a.toml").write_text("22")
    cache._program_digest.cache_clear()
    assert cache._program_digest() != before
    cache._program_digest.cache_clear()
