"""Findings of one rule in one file as one patch: what is measured together is reported together."""

from __future__ import annotations

from perfaudit.findings import Finding, Fix
from perfaudit.static.document import handed_over
from perfaudit.static.fix import together


def merge(findings: list[Finding]) -> tuple[Finding, dict[str, str]] | None:
    """Findings of one rule in one file as one: their fixes together, all their places; and the patched text by path.

    The savings of single places would not add up. None where no fix can be made. A fix that touches the same text as an
    earlier one is left out, with its place.
    """
    done = together(findings)
    if done is None:
        return None
    first, n = done.applied[0], len(done.applied)
    assert first.fix is not None
    unsafe = any(f.fix and f.fix.safety == "unsafe" for f in done.applied)
    title = first.fix.title if n == 1 else f"{first.fix.title} ({n} places)"
    fix = Fix(title, "unsafe" if unsafe else "safe", done.changes, done.edits, done.diff, first.fix.before)
    fix = handed_over(done.path, done.before, fix)
    places = tuple(place for f in done.applied for place in (f.places or ((f.location,) if f.location else ())))
    merged = first.with_(fix=fix, places=places if n > 1 or first.places else ())
    return merged, {done.path: done.after}


def runs(finding: Finding, lines: set[int]) -> bool:
    """Whether one of these lines of its file, which ran, is the finding's."""
    place = finding.location
    return place is not None and any(line in lines for line in range(place.line, place.end_line + 1))
