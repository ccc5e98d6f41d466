"""Scratch folders for what scripts write in children of this process: each child its own, deleted with it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from perfaudit.measure.child import Asked
from perfaudit.measure.exchange import exchange_in
from perfaudit.script.request import Script
from perfaudit.script.scratch_folders import own_scratch, remove_scratch, scratch_root
from perfaudit.target.names import Target

Reply = dict[str, Any]  # JSON


def target_json(target: Target, child: Asked | None = None, beside: Sequence[Path] = ()) -> Reply:
    """A target as a child is told it: a script with the folder that its files go to, unless it writes its own.

    child: after which that folder is deleted; without it, at the end of this process. beside: folders besides the working
    directory in which the script runs.
    """
    if not target.is_script or target.in_place:
        return target.to_json() | {"scratch": "", "shared": ""}
    home = _home(scratch_root(Script(target.file), beside))
    own = Path(tempfile.mkdtemp(dir=home / "scratch"))
    if child is not None:
        child.at_end(partial(remove_scratch, own))
    return target.to_json() | {"scratch": str(own), "shared": str(home / "shared")}


@functools.cache
def _home(root: Path) -> Path:
    """The folder of this process there, with one for what children write and one in which both sides find each other's files."""
    at_end = contextlib.ExitStack()
    atexit.register(at_end.close)
    home = at_end.enter_context(own_scratch(root))
    for name in ("scratch", "shared"):
        (home / name).mkdir()
    exchange_in(str(home / "shared"))
    return home
