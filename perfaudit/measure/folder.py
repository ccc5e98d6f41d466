"""The folder in which perfaudit keeps what it measured: `.perfaudit` in the working directory. Standard library only."""

from __future__ import annotations

import contextlib
from pathlib import Path

from perfaudit.files import Folder

FOLDER = ".perfaudit"


def own_folder(folder: Path, *below: str, make: bool = False) -> Folder:
    """`.perfaudit` in a folder, or a folder in that; close it. Raises OSError, `files.Refused` for a link or what is another
    user's.

    make: it is made if need be, with a `.gitignore` that keeps it out of commits.
    """
    own = Folder.opened(folder, FOLDER, make=make)
    if make:
        with contextlib.suppress(OSError):
            if own.status(".gitignore") is None:
                own.create(".gitignore", b"*\n")
    for name in below:
        with own:
            own = own.below(name, make)
    return own
