"""Where checks look: files of the system, variables, programs, and torch in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from perfaudit.machine.limits import ROOT, text_of, usable_cores

DEADLINE = 20.0  # seconds of a program
TORCH_DEADLINE = 120.0  # seconds; a first import from a network disk takes a minute
_TELL = Path(__file__).with_name("tell_torch.py")


@dataclass
class Place:
    """One machine as one process sees it.

    root: of the file system. folder: where the user works. has_bandwidth: whether copies and reads may be timed.
    """

    root: Path = ROOT
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: Path = field(default_factory=Path.cwd)
    python: str = sys.executable
    has_bandwidth: bool = True

    def text(self, path: str) -> str | None:
        """A file of the system, by its path below the root; None where it cannot be read."""
        return text_of(self.root / path)

    def number(self, path: str) -> int | None:
        """The same as a whole number."""
        text = (self.text(path) or "").strip()
        return int(text) if text.isdigit() else None

    @cached_property
    def cores(self) -> int:
        """Cores that this process may use."""
        return usable_cores(self.root)

    def output_of(self, program: str, *arguments: str) -> str | None:
        """What a program prints; None where there is none of this name, it fails, or it takes too long."""
        found = shutil.which(program, path=self.environment.get("PATH"))
        if found is None:
            return None
        try:
            done = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=DEADLINE, check=True)
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return done.stdout

    @cached_property
    def torch(self) -> dict[str, Any]:  # Any: JSON
        """What torch says of itself, by `tell_torch`; {} without torch, {"problem": ...} where it does not load.

        The process starts in a folder of ours, so that no module of the working directory can stand in torch's place.
        """
        command = [self.python, str(_TELL), *(["--copy"] if self.has_bandwidth else [])]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TORCH_DEADLINE,
                env=dict(self.environment),
                cwd=_TELL.parent,
            )
        except subprocess.TimeoutExpired:
            return {"problem": f"it does not load in {TORCH_DEADLINE:.0f} seconds"}
        except OSError as error:
            return {"problem": str(error)}
        try:
            told = json.loads(done.stdout)
        except ValueError:
            last = (done.stderr.strip().splitlines() or [f"it left with {done.returncode}"])[-1]
            return {"problem": last[:200]}
        return told if isinstance(told, dict) else {}
