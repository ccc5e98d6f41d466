"""Findings of one rule in one file as one patch: what is measured together is reported together."""

from __future__ import annotations

from pathlib import Path

from perfaudit.findings import Finding, Fix
from perfaudit.measurements import Settings
from perfaudit.static.document import handed_over
from perfaudit.static.fix import together
from perfaudit.static.source import Unreadable, read_text
from perfaudit.tune.candidates import PATCH, Candidate


def candidate_of(rule: str, path: str, group: list[Finding]) -> tuple[Finding, Candidate] | None:
    """Findings of one rule in one file as one, and its fix as what is raced; None where there is none, or no file any more."""
    finding = merge(group)
    if finding is None:
        return None
    assert finding.fix is not None and finding.location is not None
    try:
        before = read_text(Path(path))[0]
    except (OSError, Unreadable):
        return None
    settings: Settings = {"patch": rule, "path": path}
    return finding, Candidate(f"{rule} {path}", PATCH, settings, finding.fix, finding.location, before, "code")


def merge(findings: list[Finding]) -> Finding | None:
    """Findings of one rule in one file as one: their fixes together, all their places.

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
    return first.with_(fix=fix, places=places if n > 1 or first.places else ())


def runs(finding: Finding, lines: set[int]) -> bool:
    """Whether one of these lines of its file, which ran, is the finding's."""
    place = finding.location
    return place is not None and any(line in lines for line in range(place.line, place.end_line + 1))
