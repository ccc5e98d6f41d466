"""Files of a script kept away in the process that measures it: all but one folder, in which others find what it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfaudit.script.scratch_folders import remove_scratch

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys
from pathlib import Path
from perfaudit.script.kept_away import keep_files_away
from perfaudit.script.overlay_mounts import Cover, NotKeptAway
scratch, shared, mounts = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "mounts"
try:
    kept = keep_files_away(scratch, "train.py", mounts, [shared])
except NotKeptAway as why:
    print(why)
    sys.exit(7)
if mounts and not isinstance(kept, Cover):
    sys.exit(7)
Path("last.pt").write_text("new")
assert Path("last.pt").read_text() == "new"
(shared / "gradients.pt").write_text("found")
marker = os.open(shared / "marker", os.O_WRONLY)
os.pwrite(marker, b"key", 0)
os.close(marker)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["mounts", "redirected"])
def test_the_folder_that_is_shared_stays_as_it_is(way: str, tmp_path: Path) -> None:
    project, scratch, shared = (tmp_path / name for name in ("project", "scratch", "shared"))
    for folder in (project, scratch, shared):
        folder.mkdir()
    (project / "last.pt").write_text("mine")
    (shared / "marker").write_text("...")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(scratch), str(shared), way],
        cwd=project, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode == 7:
        pytest.skip(f"this machine has no {way}: {done.stdout}")
    assert done.returncode == 0, done.stderr
    assert (project / "last.pt").read_text() == "mine"
    assert ((shared / "gradients.pt").read_text(), (shared / "marker").read_text()) == ("found", "key")


def test_a_link_of_the_script_s_leads_out_of_the_scratch_folder_and_stays_untouched(tmp_path: Path) -> None:
    outside, scratch = tmp_path / "outside", tmp_path / "scratch"
    outside.mkdir(mode=0o755)
    (scratch / "upper").mkdir(parents=True)
    (scratch / "upper" / "work").symlink_to(outside)
    remove_scratch(scratch)
    assert not scratch.exists()
    assert outside.stat().st_mode & 0o777 == 0o755
