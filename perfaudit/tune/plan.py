"""Findings of one rule in one file as one patch: what is measured together is reported together."""

from __future__ import annotations

from pathlib import Path

from perfaudit.findings import Finding, Fix
from perfaudit.static.fix import patch
from perfaudit.static.source import Unreadable, read_text


def merge(findings: list[Finding]) -> tuple[Finding, dict[str, str]] | None:
    """Findings of one rule in one file as one: their fixes together, all their places; and the patched text by path.

    The savings of single places would not add up. None where no fix can be made. A fix that touches the same text as an
    earlier one is left out, with its place.
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
