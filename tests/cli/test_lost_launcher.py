"""Ranks whose launcher is killed: `kill -9` of torchrun's agent leaves nobody who would end them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.processes import descendants, started_at

# What a launcher does: two ranks with variables of their own, and no word to them before it is killed.
LAUNCHER = """
import os, subprocess, sys
common = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
for rank in ("0", "1"):
    with open(f"said-{rank}", "w") as said:
        command = [sys.executable, "-m", "perfaudit", *sys.argv[1:]]
        subprocess.Popen(command, env={**common, "RANK": rank, "LOCAL_RANK": rank}, stdout=said, stderr=said)
input()
"""
HANGS = """
import os, time
open("begun-" + os.environ["RANK"], "w").close()
time.sleep(600)
"""
SECONDS = 30.0  # for ranks to end: they look twice a second, and a script gets ten seconds to leave


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.05)
    return is_so()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells which process has started a rank")
@pytest.mark.parametrize("command", [["run", "--in-place", "train.py"], ["tune", "--in-place", "train.py"]])
def test_no_rank_and_no_script_outlives_a_launcher_that_is_killed(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "train.py").write_text(HANGS)
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *command], cwd=tmp_path, stdin=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    family = dict[int, int]()
    try:
        assert wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2, 60)
        family = {pid: since for pid in descendants(launcher.pid) if (since := started_at(pid)) is not None}
        assert len(family) >= 4  # two ranks, and their scripts
        launcher.kill()
        launcher.wait()
        assert wait_until(lambda: not any(started_at(pid) == since for pid, since in family.items()), SECONDS)
    finally:
        launcher.kill()
        for pid, since in family.items():
            if started_at(pid) == since:
                os.kill(pid, 9)
    said = "".join((tmp_path / f"said-{rank}").read_text() for rank in (0, 1))
    assert "which has started rank 0, is gone" in " ".join(said.split())
    assert not list(tmp_path.glob("perfaudit_scratch_*"))  # where they met, and what scripts wrote
