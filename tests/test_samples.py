"""The sample models: what their headers promise is what the scanner finds, and patched they still train."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfaudit.static.fix import patches
from perfaudit.static.scan import scan

ROOT = Path(__file__).parent.parent
SLOW = sorted((ROOT / "sample_models").glob("*.py"))
FAST = sorted((ROOT / "sample_models" / "fast").glob("*.py"))


@pytest.mark.parametrize("path", SLOW, ids=lambda path: path.stem)
def test_the_header_says_what_is_found(path: Path) -> None:
    header = set(re.findall(r"^- (PA\d+):", path.read_text(), flags=re.MULTILINE))
    assert header
    assert {finding.rule for finding in scan([str(path)]).findings} == header


@pytest.mark.parametrize("path", FAST, ids=lambda path: path.stem)
def test_the_fast_twin_is_silent(path: Path) -> None:
    assert scan([str(path)]).findings == ()


def test_every_sample_has_a_twin() -> None:
    assert [path.name for path in SLOW] == [path.name for path in FAST]


@pytest.mark.parametrize("path", SLOW, ids=lambda path: path.stem)
def test_all_fixes_together_still_train(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(path, tmp_path)
    (patched,) = patches(scan([path.name]).findings, unsafe=True)
    assert patched.waiting == ()
    Path("patch").write_text(patched.diff)
    subprocess.run(["git", "apply", "patch"], check=True)
    assert Path(path.name).read_text() == patched.after
    command = [sys.executable, path.name, "--epochs", "1", "--steps", "2"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**_environment(), "OMP_WAIT_POLICY": "PASSIVE"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"loss \d", done.stdout)


@pytest.mark.parametrize("path", SLOW, ids=lambda path: path.stem)
def test_safe_fixes_leave_the_losses_as_they_are(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed prints the same lines, to the last digit, before and after."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(path, tmp_path)
    (patched,) = patches(scan([path.name]).findings, unsafe=False) or pytest.skip("no safe fix in this sample")
    before = _run(path.name)
    Path(path.name).write_text(patched.after)
    assert _run(path.name) == before


def _run(name: str) -> str:
    command = [sys.executable, name, "--epochs", "1", "--steps", "3"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=_environment()).stdout


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}
