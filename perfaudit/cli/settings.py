"""The settings of a folder, with what is to be said of where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.cli.output import say

if TYPE_CHECKING:
    from perfaudit.config import Config


def settings_of_project(start: Path | None = None) -> Config:
    """The configuration that holds for a folder (the working directory); says which files another user owns, on stderr."""
    from perfaudit.config import find_config
    from perfaudit.render.words import one_line

    config = find_config(start or Path.cwd())
    for note in config.notes:
        say(f"perfaudit: {one_line(note)}")
    return config
