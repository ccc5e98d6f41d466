"""Under which names a script's own code holds a thing while it trains: where a statement about it can be written. Child only."""

from __future__ import annotations

import os
import types
from dataclasses import dataclass
from typing import Any

from perfaudit.target.frame_names import names_in
from perfaudit.target.provenance import users_frames


@dataclass(frozen=True, slots=True)
class Held:
    """A name in one of the user's files. function: qualified, "<module>" for the file itself; first_line: where its code begins.

    name: "model", or "self.model". line: that the function has come to.
    """

    path: str
    function: str
    first_line: int
    name: str
    line: int


def held_names(thing: object, innermost: types.FrameType | None) -> list[Held]:
    """The names of a thing in functions of the user that run, from the innermost frame outwards; in each the plain ones first."""
    found: list[Held] = []
    for frame in users_frames(innermost):
        code = frame.f_code
        at = os.path.realpath(code.co_filename), code.co_qualname, code.co_firstlineno
        with names_in(frame) as names:
            plain = [name for name, value in names.items() if value is thing]
            own = [f"self.{name}" for name, value in _attributes(names.get("self")).items() if value is thing]
        found += [Held(*at, name, frame.f_lineno or 0) for name in [*plain, *own]]
    return found


def _attributes(owner: Any) -> dict[str, Any]:
    """What an object has by itself; a module keeps its parts in a table of its own."""
    own = getattr(owner, "__dict__", {})
    return {**own, **own.get("_modules", {})} if isinstance(own, dict) else {}
