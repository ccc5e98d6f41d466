"""The training loop of a file that is tuned by its factories: it is not what is measured, and a report says so."""

from __future__ import annotations

from pathlib import Path, PurePath

from perfaudit.measurements import OwnLoop
from perfaudit.static.source import Unreadable, read_source
from perfaudit.static.understanding.entry import is_script, training_loops
from perfaudit.static.understanding.values import enclosing_function
from perfaudit.target.names import ROLES, Target, factories


def own_loop(target: Target) -> OwnLoop | None:
    """The loop that `python FILE` would run, where the file's factories are measured instead; None where there is none.

    None for a script, and where the user has named factories: they know.
    """
    found = factories(target.file)
    if target.is_script or target.names or not found:
        return None
    try:
        source = read_source(Path(target.file), target.file)
    except Unreadable:
        return None
    loops = training_loops(source)
    if not loops or not is_script(source, loops):
        return None
    names = tuple(found[role] for role in ROLES if role in found)
    for step in loops:
        function = enclosing_function(source, step.loop)
        name = getattr(function, "name", "")
        if name not in names:
            return OwnLoop(target.file, step.loop.lineno, name, names, _as_module(target.file))
    return None


def _as_module(file: str) -> str:
    """The name by which `-m` runs the file as `python FILE` does: of one in the working directory; "" for others."""
    path = PurePath(file)
    is_here = len(path.parts) == 1 and path.suffix == ".py"
    return path.stem if is_here and path.stem.isidentifier() else ""
