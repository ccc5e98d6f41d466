"""Calls by a last name, in this file and in those of the scan that import it. What they run, the name alone does not say."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.names import last_name

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


def _calls(source: Source, name: str) -> Calls:
    return [(source, call) for call in calls_by_last_name(source).get(name, ())]
