"""Commands that are started without a stream, or in a folder that is gone: a sentence and an exit code, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = f"{sys.executable} -m perfaudit"


def started(command: str, folder: Path) -> Any:
    return subprocess.run(["/bin/sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("scan a.py 2>&-", 0, "nothing found in 1 file"),
        ("scan a.py >&-", 0, ""),
        ("scan a.py <&- >&- 2>&-", 0, ""),
        ("scan nothing.py 2>&-", 2, ""),
        ("scan - <&-", 2, "perfaudit: standard input is closed; - reads one text from it"),
        ("scan a.py >/dev/full", 2, "perfaudit: stdout: not written: no space left on device"),
        ("rules >/dev/full", 2, "perfaudit: stdout: not written: no space left on device"),
        ("--version >/dev/full", 2, "perfaudit: stdout: not written: no space left on device"),
        ("explain PA201 2>&- >&-", 0, ""),
        ("history 2>&-", None, ""),
        ("apply nothing.json 2>&-", 2, ""),
    ],
)
def test_closed_streams(tmp_path: Path, command: str, code: int | None, said: str) -> None:
    (tmp_path / "a.py").write_text("import torch\n")
    done = started(f"{RUN} {command}", tmp_path)
    assert "Traceback" not in done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert done.returncode in ((0, 2, 3) if code is None else (code,))
    assert (tmp_path / "a.py").read_text() == "import torch\n"


@pytest.mark.parametrize("command", ["scan .", "rules", "history", "apply x.json"])
def test_a_working_directory_that_is_gone(tmp_path: Path, command: str) -> None:
    done = started(f'mkdir gone && cd gone && rmdir "$PWD" && {RUN} {command}', tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("perfaudit: the working directory cannot be found (")
