"""Memory that a step frees, kept for the next one: where it can matter, and its patch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from surveys import survey_of

from perfaudit.knobs import Survey, Told, allocator
from perfaudit.knobs._code import Code
from perfaudit.target.freed_memory import is_glibc
from perfaudit.tune.search import pointless

KNOB = allocator.KNOB
KEPT = {"memory": "kept"}
PROFILE = {"forward": 0.02, "backward": 0.03}


def survey(page_faults: float | None = 6000.0, device: str = "cpu", **host: object) -> Survey:
    given = survey_of(profile=PROFILE, device={"type": device}, host={"glibc": True, **host})
    return replace(given, page_faults=page_faults)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(), ""),
        (survey(device="cuda"), "it is about training on the CPU, and this training runs on cuda"),
        (survey(glibc=False), "memory does not come from glibc here"),
        (survey(keeps_memory=True), "glibc keeps what is freed already"),
        (survey(memory_variable="MALLOC_TRIM_THRESHOLD_"), "MALLOC_TRIM_THRESHOLD_ says how glibc keeps memory"),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


def test_a_step_that_asks_for_little_memory_has_little_to_gain() -> None:
    assert pointless(KNOB, survey()) == ""
    assert pointless(KNOB, survey(page_faults=None)) == ""
    assert "asks the system for 40 pages of memory, at most 0.2 % of it" in pointless(KNOB, survey(page_faults=40.0))


def test_it_is_raced_behind_the_others() -> None:
    assert KNOB.is_of_process
    assert KNOB.raced_behind(survey()) == [KEPT]


START = """import ctypes
import platform
import torch
if platform.libc_ver()[0] == "glibc":  # what a step frees is kept for the next one: see `man mallopt`
    ctypes.CDLL(None).mallopt(-4, 0)  # M_MMAP_MAX: no block of memory is mapped by itself
    ctypes.CDLL(None).mallopt(-1, -1)  # M_TRIM_THRESHOLD: none is given back
print(1)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\nprint(1)\n", START),
        ("import torch; print(1)\n", None),  # no line between the two
        (START, None),
        ('"""Trains."""\n', None),
    ],
)
def test_the_patch(before: str, after: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(before)
    patch = KNOB.patch(Code("train.py", survey()), KEPT)
    if before == '"""Trains."""\n':
        assert patch is not None and "mallopt(-1, -1)" in patch.after
        return
    assert (patch and sorted(patch.after.splitlines())) == (after and sorted(after.splitlines()))


def test_there_is_no_patch_that_gives_memory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\nprint(1)\n")
    assert KNOB.patch(Code("train.py", survey()), {"memory": "returned"}) is None


@pytest.mark.skipif(not is_glibc(), reason="memory does not come from glibc here")
def test_the_patched_file_runs_and_has_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asks = "from perfaudit.target.freed_memory import keeps_memory\nprint(keeps_memory())\n"
    Path("train.py").write_text(asks)
    patch = KNOB.patch(Code("train.py", survey()), KEPT)
    assert patch is not None
    said = []
    for text in (asks, patch.after):
        Path("train.py").write_text(text)
        root = str(Path(allocator.__file__).parents[2])
        command = [sys.executable, "train.py"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONPATH": root, "PATH": ""})
        said.append(done.stdout)
    assert said == ["False\n", "True\n"]


def test_what_it_says_of_memory() -> None:
    told = Told(survey(), (), (), {}, KEPT)
    assert any("as much memory until it ends" in line for line in KNOB.remarks(told))
    assert KNOB.remarks(replace(told, winner=None)) == []
