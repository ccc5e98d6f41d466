"""Which of the files that a process has imported are those of the script's project. Child only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from perfaudit.target.pip_folders import folders_of_pip

OURS = str(Path(__file__).resolve().parents[1]) + os.sep


def is_own(file: str) -> bool:
    """Whether a file is neither Python's, nor an installed library's, nor ours."""
    return not file.startswith(
        (OURS, sys.prefix + os.sep, sys.base_prefix + os.sep, "<", *folders_of_pip(tuple(sys.path)))
    ) and not any(part in file for part in ("site-packages", "dist-packages"))


class OwnFiles:
    """The files of the script's project that were imported: those that no library is installed in.

    Torch alone has a thousand modules. Each is looked at once, as this is asked between steps.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()  # names of modules
        self._number = 0  # of modules when they were looked at last
        self._files: set[str] = set()

    def names(self) -> list[str]:
        """Those that are there, in order."""
        if len(sys.modules) != self._number:
            self._number = len(sys.modules)
            for name in sys.modules.keys() - self._known:
                self._known.add(name)
                self._add(str(getattr(sys.modules.get(name), "__file__", None) or ""))
        return sorted(name for name in self._files if Path(name).is_file())

    def _add(self, file: str) -> None:
        if file.endswith(".py") and (".." in file or is_own(file)):
            path = os.path.abspath(file)  # noqa: PTH100
            if is_own(path):
                self._files.add(path)
