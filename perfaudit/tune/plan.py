"""From findings and settings to the source text that would have them: what is measured is what is handed over."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from perfaudit.findings import Finding, Fix, Location
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.discover import shown
from perfaudit.static.fix import patch
from perfaudit.static.source import Source, Unreadable, read_source, read_text

Site = list[Any]  # path, line, end line, byte column, end byte column: as `worker` sends it


def call_at(site: Site | None) -> tuple[Source, ast.Call] | None:
    """The call in the user's source that stands at exactly this place; None where it cannot be found or is not theirs."""
    if site is None:
        return None
    path, line, end_line, column, end_column = site
    try:
        source = read_source(Path(path), shown(Path(path)))
    except Unreadable:
        return None
    for call in source.nodes(ast.Call):
        if (call.lineno, call.end_lineno, call.col_offset, call.end_col_offset) == (line, end_line, column, end_column):
            return source, call
    return None


def inside_project(path: str) -> bool:
    """Whether a file lies below the working directory: patches touch nothing else."""
    return not os.path.relpath(os.path.realpath(path), os.path.realpath(Path.cwd())).startswith("..")


def site_patch(
    knob: ModuleType, facts: dict[str, Any], settings: Settings
) -> tuple[Fix, Location, dict[str, str]] | None:
    """The patch that gives the call that built the loader these settings, its place, and the patched text by path.

    None where there is no such call in the project, or it cannot be edited without a doubt.
    """
    found = call_at(facts["loader_site"])
    if found is None or not inside_project(facts["loader_site"][0]):
        return None
    source, call = found
    edits = knob.edits(source, call, settings, facts)
    if not edits:
        return None
    after = edit.apply(source.text, edits)
    try:
        ast.parse(after)
    except SyntaxError:
        return None
    title = knob.words(settings, facts)
    fix = Fix(title, "unsafe", knob.changes(), tuple(edits), edit.diff(source.path, source.text, after))
    return fix, source.location(call), {source.path: after}


def merge(findings: list[Finding]) -> tuple[Finding, dict[str, str]] | None:
    """Findings of one rule in one file as one: their fixes together, all their places; and the patched text by path.

    What is measured together is reported together: the savings of single places would not add up. None where no fix can
    be made. A fix that touches the same text as an earlier one is left out, with its place.
    """
    located = [f for f in findings if f.location is not None and f.fix is not None and f.fix.edits]
    if not located:
        return None
    first = located[0]
    assert first.location is not None and first.fix is not None
    path = first.location.path
    try:
        text, _ = read_text(Path(path))
    except Unreadable:
        return None
    done = patch(path, text, [f for f in located if f.location is not None and f.location.path == path])
    if not done.applied:
        return None
    edits = tuple(edit_ for f in done.applied if f.fix for edit_ in f.fix.edits)
    changes = tuple(dict.fromkeys(c for f in done.applied if f.fix for c in f.fix.changes))
    unsafe = any(f.fix and f.fix.safety == "unsafe" for f in done.applied)
    n = len(done.applied)
    title = first.fix.title if n == 1 else f"{first.fix.title} ({n} places)"
    fix = Fix(title, "unsafe" if unsafe else "safe", changes, edits, done.diff)
    places = tuple(place for f in done.applied for place in (f.places or ((f.location,) if f.location else ())))
    merged = first.with_(fix=fix, places=places if n > 1 or first.places else ())
    return merged, {path: done.after}
