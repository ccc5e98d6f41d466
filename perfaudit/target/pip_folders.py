"""Folders of PYTHONPATH into which `pip install --target` has put libraries: what lies there is not the user's own code."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path


@functools.lru_cache(maxsize=16)
def folders_of_pip(path: tuple[str, ...]) -> tuple[str, ...]:
    """These folders, as they are written and with their links followed, each with a separator at its end.

    path: what `sys.path` holds, with the script's own folder first. That one is the script's whatever lies in it, and so is the
    working directory.
    """
    found = []
    for folder in dict.fromkeys(os.path.abspath(each) for each in path[1:]):  # noqa: PTH100
        with contextlib.suppress(OSError):
            is_own_folder = os.path.samefile(folder, path[0] or os.curdir) or os.path.samefile(folder, os.curdir)  # noqa: PTH121
            if not is_own_folder and any(each.suffix == ".dist-info" for each in Path(folder).iterdir()):
                found += [folder + os.sep, os.path.realpath(folder) + os.sep]
    return tuple(dict.fromkeys(found))
