"""The folder in which perfaudit keeps what it measured: `.perfaudit` in the working directory. Standard library only."""

from __future__ import annotations

import contextlib
from pathlib import Path

FOLDER = ".perfaudit"


def made(folder: Path) -> Path:
    """The folder, made if need be, with a `.gitignore` that keeps it out of commits. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        with contextlib.suppress(OSError):
            ignore.write_text("*\n")
    return folder
