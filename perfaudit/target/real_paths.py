"""Where files lie, links followed. It is asked of all modules of a process, which are thousands with torch.

What a process knows of its modules, its forks know, too. Of all other files the system is asked each time.
"""

from __future__ import annotations

import os
import sys

_known: dict[str, str] = {}


def know_modules() -> None:
    """Look up the files of all modules that are imported so far: those of libraries, in a process that forks trainings."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")  # a lazy module imports what it is asked for
        if isinstance(file, str) and os.path.isabs(file) and file not in _known:  # noqa: PTH117  # thousands of texts
            _known[file] = os.path.realpath(file)


def real_path(file: str) -> str:
    """As `os.path.realpath`."""
    return _known.get(file) or os.path.realpath(file)
