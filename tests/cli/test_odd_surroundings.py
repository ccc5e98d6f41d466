"""Without a home, with closed streams, beside names that are no UTF-8: an exit code and a sentence, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"


@pytest.mark.parametrize(
    ("before", "command", "code"),
    [
        ("", "scan .", 1),
        ("", "scan . --format json", 1),
        ("", "history", 3),
        ("", "tune --help", 0),
        ("", "apply none.json", 2),
        ("exec <&-", "gate", 2),
        ("exec >&-", "gate", 2),
        ("exec 2>&-", "gate", 2),
        ("exec >&-", "history", 3),
        ("exec >&-", "tune --help", 0),
    ],
)
def test_no_traceback(tmp_path: Path, before: str, command: str, code: int) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/tr\xe9in.py")).write_text(PROGRAM)
    homeless = {k: v for k, v in os.environ.items() if k != "HOME" and not k.startswith("XDG_")}
    script = f"{before or ':'}; exec {sys.executable} -m perfaudit {command}"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=homeless, capture_output=True, check=False)
    assert b"Traceback" not in done.stdout + done.stderr
    assert done.returncode == code
