"""Why a script misses a module: it lies in the folder of the command, or another Python has it. Imports nothing."""

from __future__ import annotations

import sys
from pathlib import Path


def where_to_find(error: BaseException, folder: Path | None = None) -> str:
    """What to do about a module that is missing; "" of other errors, and of a part of a package that is there.

    Python looks for modules in the folder of the script, not in that of the command. folder: the latter, None for the working
    directory. perfaudit may also be installed in another environment than what the script needs.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name or "." in error.name:
        return ""
    here = folder or Path.cwd()
    # A folder without Python files is none of it: a tracker of runs leaves one by its own name.
    if (here / f"{error.name}.py").is_file() or any((here / error.name).glob("*.py")):
        return f". `{error.name}` lies in the folder of the command: put PYTHONPATH=. before the command, as for python itself"
    return f". It runs with {sys.executable}, which has no `{error.name}`"
