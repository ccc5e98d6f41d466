"""The folder in which the command was typed: what the user named, and what they are shown, is relative to it.

The user's code may change the working directory of its process (`os.chdir` where a module is imported, or in a factory).
What it opens is looked up where it went; what perfaudit looks up, here. Runs in a child, where `begin` says which it is.
"""

from __future__ import annotations

import os
from pathlib import Path

_began_in = ""


def begin() -> None:
    """The present working directory is the one in which the command was typed; before any of the user's code runs."""
    global _began_in
    _began_in = str(Path.cwd())


def working_folder() -> Path:
    """The folder of the command; the present working directory where nobody said which it is."""
    return Path(_began_in) if _began_in else Path.cwd()


def present_folder() -> str:
    """Where the user's code has gone; "" where that was deleted."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def full_path(name: str) -> str:
    """An absolute path of what the user calls by this name, links and ".." as they are."""
    return str(working_folder() / name)


def shown_path(path: str) -> str:
    """A path as seen from the folder of the command; as it is where it lies outside."""
    relative = os.path.relpath(full_path(path), working_folder())
    return path if relative.startswith("..") else relative
