"""The cache gives what a scan would give, or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit import forked_work as workers
from perfaudit.report import Report
from perfaudit.static import scan as scanning
from perfaudit.static.cache import FOLDER
from perfaudit.static.scan import Options, scan
from perfaudit.user_folder import cache_folder
from tests.static.test_trainers_of_settings import BUILT, PLAIN

Project = Callable[..., Path]
TRAIN = """
    import torch
    from data import Loader
    torch.autograd.set_detect_anomaly(True)
    for batch in Loader(ds):
        batch.cuda()
"""
# What these two could do better has no patch, so that the result is kept.
ADVISED = TRAIN.replace("torch.autograd.set_detect_anomaly(True)", "")
KEPT = """
    import torch
    class Loader(torch.utils.data.DataLoader): pass
    for batch in Loader(ds):
        batch.cuda()
"""
DATA = "from torch.utils.data import DataLoader\nclass Loader(DataLoader): pass\n"


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the user's: the folder that will hold its entries."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    with cache_folder() as folder:
        return folder.path / FOLDER


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files that were really audited."""
    done: list[str] = []
    real = scanning.audit_file

    def counting(path: Path, *rest: object) -> object:
        done.append(path.name)
        return real(path, *rest)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(scanning, "audit_file", counting)
    monkeypatch.setattr(workers, "can_fork", lambda: False)  # what a child appends is lost with it
    return done


def scanned(folder: Path, **options: object) -> Report:
    return scan([str(folder)], Options(cache=True, **options))  # type: ignore[arg-type]  # names are checked at run time


def rules(report: Report) -> set[str]:
    return {rule for finding in report.findings for rule in (finding.rule, *finding.also)}


def test_the_second_scan_reads_results(project: Project, audits: list[str]) -> None:
    folder = project(**{"train.py": ADVISED, "data.py": DATA, "bad.py": "import torch\nx = ("})
    first = scanned(folder)
    assert sorted(audits) == ["bad.py", "data.py", "train.py"]
    assert {"PA101", "PA102"} <= rules(first)
    audits.clear()
    assert scanned(folder) == first
    assert audits == ["bad.py"]  # what could not be audited is tried again


@pytest.mark.parametrize(
    ("name", "text", "audited"),
    [
        ("train.py", "import torch\n", ["train.py"]),
        # A neighbour decides what `Loader` is; data.py lacks torch now.
        ("data.py", "class Loader: pass\n", ["train.py"]),
        ("other.py", "x = 1\n", []),  # no name of train.py leads there
    ],
)
def test_what_changed_is_audited_again(
    project: Project, audits: list[str], name: str, text: str, audited: list[str]
) -> None:
    folder = project(**{"train.py": ADVISED, "data.py": DATA})
    scanned(folder)
    audits.clear()
    (folder / name).write_text(text)
    after = scanned(folder)
    assert audits == audited
    assert after == scan([str(folder)])


def test_a_changed_setting_is_asked_for_again(project: Project, audits: list[str]) -> None:
    text = "import torch, yaml\nloader = torch.utils.data.DataLoader(images, num_workers=cfg.num_workers)\nfor x in loader: 1\n"
    folder = project(**{"train.py": text, "a.yaml": "num_workers: 0\n", "b.yaml": "seed: 1\n"})
    assert rules(scanned(folder)) == {"PA101"}
    audits.clear()
    (folder / "b.yaml").write_text("seed: 2\n")
    assert rules(scanned(folder)) == {"PA101"}
    assert audits == []
    (folder / "b.yaml").write_text("num_workers: 4\n")
    assert rules(scanned(folder)) == set()
    assert audits == ["train.py"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("conf/model/net.yaml", "_target_: small.Net\n"),
        ("conf/model/net.yaml", "_target_: net.Net\nchannels: 16\n"),
        ("conf/train.yaml", "defaults:\n  - model: net\n  - trainer: default.yaml\n  - debug: null\n"),
        ("conf/trainer/gpu.yaml", "accelerator: gpu\nprecision: 16\n"),
        ("conf/more.yaml", "trainer:\n  precision: 16\n"),
    ],
)
def test_a_trainer_or_model_that_settings_change_is_asked_for_again(project: Project, file: str, text: str) -> None:
    folder = project(**{"train.py": BUILT, **PLAIN})
    only = frozenset({"PA304"})
    assert rules(scanned(folder, selected=only)) == {"PA304"}
    (folder / file).write_text(text)
    assert rules(scanned(folder, selected=only)) == set()


def test_other_rules_are_another_entry(project: Project, audits: list[str]) -> None:
    folder = project(**{"train.py": TRAIN, "data.py": DATA})
    assert rules(scanned(folder, selected=frozenset({"PA501"}))) == {"PA501"}
    assert "PA101" in rules(scanned(folder))


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"depends": {}}', b"\xff\xfe", b'{"findings": 3}', b"[" * 99999]
)
def test_damaged_entries_are_passed_over(project: Project, cache: Path, damage: bytes) -> None:
    folder = project(**{"train.py": ADVISED, "data.py": DATA})
    first = scanned(folder)
    for entry in cache.glob("*.json"):
        entry.write_bytes(damage)
    assert scanned(folder) == first


def test_a_folder_that_cannot_be_written(project: Project, cache: Path) -> None:
    folder = project(**{"train.py": TRAIN, "data.py": DATA})
    cache.write_text("a file of that name")
    assert "PA101" in rules(scanned(folder))


def test_a_user_without_a_home(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/nonexistent")
    folder = project(**{"train.py": TRAIN, "data.py": DATA})
    assert scanned(folder) == scan([str(folder)])


def test_nothing_is_written_in_the_project(project: Project, cache: Path) -> None:
    folder = project(**{"train.py": KEPT})
    scanned(folder)
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    assert [path.stat().st_mode & 0o777 for path in (cache, *sorted(cache.iterdir()))] == [0o700, 0o600, 0o600]


def test_links_of_a_project_lead_no_scan_anywhere(
    project: Project, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A folder of the user's, with a file that no scan has written for long, behind the name that the cache once had."""
    precious = tmp_path_factory.mktemp("mine") / "ab" / "old.txt"
    precious.parent.mkdir()
    precious.write_text("precious")
    os.utime(precious, (0, 0))
    folder = project(**{"train.py": KEPT})
    for name in (".perfaudit_cache", ".perfaudit", ".cache", "scan"):
        (folder / name).symlink_to(precious.parent.parent)
    scanned(folder)
    assert [path for path in precious.parent.parent.rglob("*") if path.is_file()] == [precious]


def test_old_entries_go_and_nothing_else_does(project: Project, cache: Path) -> None:
    folder = project(**{"train.py": KEPT})
    scanned(folder)
    (entry,) = cache.glob("*.json")
    others = [cache / name for name in ("notes.txt", f"{'a' * 39}.json", f"{'b' * 40}.json")]
    for other in others[:2]:
        other.touch()
    others[2].symlink_to(others[0])
    for path in (entry, *others):
        os.utime(path, (0, 0), follow_symlinks=False)
    (cache / "swept").unlink()
    (folder / "train.py").write_text("import torch\n")
    scanned(folder)
    assert not entry.exists()
    assert all(os.path.lexists(other) for other in others)


# ---- entries that somebody else made -------------------------------------------------------------------------------------


def test_an_entry_counts_for_the_user_who_made_it(
    project: Project,
    cache: Path,
    audits: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cache is brought along, as from another machine: the same program, file, path and rules."""
    folder = project(**{"train.py": KEPT})
    first = scanned(folder)
    (entry,) = cache.glob("*.json")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("other")))
    audits.clear()
    assert scanned(folder) == first
    assert audits == ["train.py"]
    (theirs,) = set(cache.glob("*.json")) - {entry}
    theirs.write_bytes(entry.read_bytes())  # under the name that counts here
    audits.clear()
    scanned(folder)
    assert audits == ["train.py"]


def test_an_entry_that_was_changed_or_moved_is_none(project: Project, cache: Path, audits: list[str]) -> None:
    folder = project(**{"train.py": KEPT, "other.py": KEPT})
    first = scanned(folder)
    one, other = sorted(cache.glob("*.json"))
    data = one.read_bytes()
    for forged in (data.replace(b"PA101", b"PA105"), data[:32] + b'{"findings": []}', b"", other.read_bytes()):
        audits.clear()
        one.write_bytes(forged)
        assert forged != data
        assert scanned(folder) == first
        assert len(audits) == 1


def test_an_entry_that_another_could_write_is_none(project: Project, cache: Path, audits: list[str]) -> None:
    folder = project(**{"train.py": KEPT})
    scanned(folder)
    (entry,) = cache.glob("*.json")
    entry.chmod(0o666)
    audits.clear()
    scanned(folder)
    assert audits == ["train.py"]


def test_the_text_of_a_fix_comes_from_the_file(project: Project, cache: Path, audits: list[str]) -> None:
    folder = project(**{"train.py": TRAIN, "data.py": DATA})
    first = scanned(folder)
    fixes = [finding.fix for finding in first.findings if finding.fix is not None and finding.fix.edits]
    assert fixes
    for entry in cache.iterdir():
        assert b"+++" not in entry.read_bytes()
    audits.clear()
    assert scanned(folder) == first
    assert audits == ["train.py"]


def test_an_entry_cannot_hold_the_text_of_a_fix() -> None:
    """Even one with the right seal: what is read back has advice only."""
    from perfaudit.static import cache

    finding = {"rule": "PA501", "name": "x", "severity": "warning", "message": "m", "location": None, "saving": None}
    fix = {
        "title": "t",
        "safety": "safe",
        "changes": [],
        "edits": [{"span": {}, "text": "evil"}],
        "diff": "evil",
        "before": "",
    }
    found = cache._finding({**finding, "fix": fix, "places": []})
    assert found.fix is not None
    assert (found.fix.edits, found.fix.diff) == ((), "")


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
    options = Options(cache=True)
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


def test_every_file_of_the_scanner_counts() -> None:
    """Also those of a check that is a folder: a result of the old code must not outlive an update."""
    from perfaudit.static import cache

    package = Path(cache.__file__).parent
    folders = {Path(folder) for folder in cache._program_folders()}
    assert folders >= {path.parent for path in package.rglob("*.py")}
    assert not [folder for folder in folders if folder.name == "__pycache__"]
