"""The folder in which this process and its children find each other's files: any, unless children write to a scratch folder."""

from __future__ import annotations

from pathlib import Path

_folder: str | None = None


def exchange_folder() -> str | None:
    """Where files that both sides open are made, None for wherever temporary files go."""
    return _folder if _folder is not None and Path(_folder).is_dir() else None


def exchange_in(folder: str) -> None:
    """From now on such files are made there; children are told to leave this folder as it is."""
    global _folder
    _folder = folder
