"""What perfaudit itself leaves in the working directory: by name, and reports that were given a name by what they begin with."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

TRACE = "perfaudit.trace.json"  # of `run --export chrome`
PROFILE = "perfaudit.profile.json"  # of `--profile` beside it
SCALARS = "perfaudit.tensorboard"  # the folder of `run --export tensorboard`
FOLDER = ".perfaudit"  # in which runs and gates are kept
_FILES, _FOLDERS = {TRACE, PROFILE}, {SCALARS, FOLDER}
_REPORT = re.compile(rb'\s*\{\s*"schema":\s*"perfaudit\.report/')
_PAGE = re.compile(rb"<!DOCTYPE html>.{0,2000}?<title>perfaudit ", re.DOTALL)
_BEGINNING = 4096  # bytes of a file that are looked at


def is_own_output(name: PurePath) -> bool:
    """Whether a file has a name that perfaudit gives by itself, in whichever folder it was started."""
    return name.name in _FILES or bool(_FOLDERS & {*name.parts[:-1]})


def is_own_report(path: Path) -> bool:
    """Whether a file is a report of perfaudit, as JSON or as a page, under a name that somebody has chosen."""
    if path.suffix not in (".json", ".html"):
        return False
    try:
        with path.open("rb") as file:
            begins = file.read(_BEGINNING)
    except OSError:
        return False
    return bool((_REPORT if path.suffix == ".json" else _PAGE).match(begins))
