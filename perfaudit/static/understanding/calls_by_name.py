"""Calls by a last name, in this file and in those of the scan that import it. What they run, the name alone does not say."""

from __future__ import annotations

import ast
from itertools import islice

from perfaudit.static.source import Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.names import last_name

MAX_DERIVING = 24  # files that are parsed for the classes that are derived from one
Calls = list[tuple[Source, ast.Call]]  # each with its file


@remember
def calls_by_last_name(source: Source) -> dict[str, list[ast.Call]]:
    """The calls of a file in document order, by the last part of what they call as it is written."""
    table: dict[str, list[ast.Call]] = {}
    for call in source.nodes(ast.Call):
        table.setdefault(last_name(call.func), []).append(call)
    return table


def calls_in_importers(source: Source, name: str) -> Calls:
    """Those of the files that import this one, directly or through others; none where they are not in sight."""
    files = source.neighbours.importers_calling(name) if source.neighbours is not None else ()
    return [each for there in files for each in _calls(there, name)]


def calls_in_sight(source: Source, name: str) -> Calls:
    """Those of this file, and behind them those of the files that import it."""
    return [*_calls(source, name), *calls_in_importers(source, name)]


def calls_by_derived(source: Source, name: str) -> Calls:
    """Calls of the constructor of a class by those derived from it, `super().__init__(...)`, in the files that import this one.

    Only by those that a call in sight or a settings file builds; a template's own are left over. None of a class that many
    files import, as those of a library.
    """
    files = source.neighbours.importers_calling("__init__") if source.neighbours is not None else ()
    read = list(islice(files, MAX_DERIVING + 1))
    if len(read) > MAX_DERIVING:
        return []
    calls = (each for file in read for each in _calls(file, "__init__"))
    return [
        (there, call) for there, call in calls if (kind := _class_derived(there, call, name)) and is_built(source, kind)
    ]


def _class_derived(source: Source, call: ast.Call, name: str) -> str:
    """The name of the class around `super().__init__(...)`, if it is derived from one of this last name; else ""."""
    owner = source.enclosing(call, ast.ClassDef)
    above = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(owner, ast.ClassDef) or not isinstance(above, ast.Call) or last_name(above.func) != "super":
        return ""
    return owner.name if any(last_name(base) == name for base in owner.bases) else ""


def is_built(source: Source, name: str) -> bool:
    """Whether a call in sight builds a class, by its last name, or a settings file has arguments for it."""
    return bool(calls_in_sight(source, name)) or bool(
        source.neighbours is not None and source.neighbours.sections_for(name)
    )


def _calls(source: Source, name: str) -> Calls:
    return [(source, call) for call in calls_by_last_name(source).get(name, ())]
