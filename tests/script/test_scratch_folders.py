"""Scratch folders of runs: gone with the run, and with the next one where a run was killed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from perfaudit.script.scratch_folders import JUST_MADE, PREFIX, own_scratch, remove_scratch, sweep


def left(root: Path, name: str, mode: int = 0o700) -> Path:
    folder = root / f"{PREFIX}{name}"
    folder.mkdir(mode=mode)
    (folder / "last.pt").write_text("weights")
    os.utime(folder, (0, folder.stat().st_mtime - 2 * JUST_MADE))
    return folder


def test_what_a_killed_run_has_left_goes_and_what_may_be_in_use_stays(tmp_path: Path) -> None:
    killed, open_to_all = left(tmp_path, "killed_0"), left(tmp_path, "open_to0", mode=0o755)
    named = left(tmp_path, "of_may")
    (tmp_path / f"{PREFIX}just_now").mkdir(mode=0o700)
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / f"{PREFIX}a_link_0").symlink_to(left(tmp_path / "mine", "aside_00"))
    with own_scratch(tmp_path) as living:
        assert not killed.exists()
        os.utime(living, (0, 0))
        sweep(tmp_path)
        assert living.is_dir()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        [open_to_all.name, named.name, f"{PREFIX}just_now", "mine", f"{PREFIX}a_link_0"]
    )
    assert (tmp_path / "mine" / f"{PREFIX}aside_00" / "last.pt").exists()


def test_a_folder_into_which_another_process_still_writes_is_deleted_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, delete, tries = left(tmp_path, "met_here"), shutil.rmtree, []

    def rmtree(path: Path, ignore_errors: bool) -> None:
        tries.append(path)
        if len(tries) > 1:
            delete(path, ignore_errors=ignore_errors)  # the first time a file had come in the meantime

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    remove_scratch(folder)
    assert (tries, folder.exists()) == ([folder, folder], False)
