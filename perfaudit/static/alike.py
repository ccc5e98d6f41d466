"""Findings of one rule in one file that say the same, as one finding with its places, for reports that people read.

Baselines and gates compare finding by finding, and fixes are applied so; this is for what is shown at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfaudit.expressions import regex
from perfaudit.findings import Finding, Fix, Location
from perfaudit.records import replace
from perfaudit.static.document import Document, read_again

# Rules whose findings in one file are alike though each shows its own code, and each is cured in the same way.
_ALIKE_BUT_FOR_CODE = {"PA105", "PA402"}
_CODE = regex(r"`[^`]*`")
Reading = Callable[[str], Document | None]


def merge_alike(findings: Sequence[Finding], read: Reading = read_again) -> tuple[Finding, ...]:
    """The findings, those that are alike as one in the place of the first, whose patch is that of all of them.

    Alike are findings of one rule in one file with the same words, severity, saving, note and kind of fix; of some rules the
    code that is shown may differ. Where their patches cannot be put together, because the file has changed meanwhile, they
    stay apart.
    """
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_kind(finding), []).append(finding)
    documents: dict[str, Document | None] = {}

    def document(path: str) -> Document | None:
        if path not in documents:
            documents[path] = read(path)
        return documents[path]

    merged: dict[int, Finding] = {}
    gone: set[int] = set()
    for group in groups.values():
        if len(group) > 1 and (one := _merge(group, document)) is not None:
            merged[id(group[0])] = one
            gone |= {id(finding) for finding in group[1:]}
    return tuple(merged.get(id(finding), finding) for finding in findings if id(finding) not in gone)


def _kind(finding: Finding) -> object:
    """What findings that are alike have in common; of one that stands alone, itself."""
    if finding.location is None or (finding.saving is not None and finding.saving.basis in ("measured", "screened")):
        return id(finding)
    fix = finding.fix
    fixed = (fix.title, fix.safety, fix.changes, bool(fix.edits), fix.before) if fix is not None else None
    message = _CODE.sub("``", finding.message) if finding.rule in _ALIKE_BUT_FOR_CODE else finding.message
    words = (message, finding.note, finding.severity, finding.saving, finding.hot)
    return (finding.rule, finding.location.path, words, fixed, finding.also)


def _merge(group: list[Finding], document: Reading) -> Finding | None:
    first, more = group[0], len(group) - 1
    fix = first.fix
    if fix is not None and fix.edits and (fix := _fix_of_all(group, fix, document)) is None:
        return None
    places = tuple(place for finding in group for place in _places(finding))
    prints = tuple(name for finding in group for name in finding.merged or (finding.fingerprint,))
    parts = tuple(part for finding in group for part in finding.parts)
    places_more = f"{more} more place{'s' if more > 1 else ''}"
    if all(finding.message == first.message for finding in group):
        message = f"{first.message}; the same in {places_more} of this file"
    else:
        message = f"{first.message}; the same goes for others in {places_more} of this file"
    return first.with_(message=message, fix=fix, places=places, merged=prints, parts=parts)


def _places(finding: Finding) -> tuple[Location, ...]:
    return finding.places or ((finding.location,) if finding.location is not None else ())


def _fix_of_all(group: list[Finding], fix: Fix, document: Reading) -> Fix | None:
    """One fix with the edits of all: of those that overlap only the first, as `--fix` applies them."""
    path = group[0].location.path if group[0].location is not None else ""
    found = document(path)
    if found is None or not fix.before or found.digest != fix.before:
        return None
    from perfaudit.static.fix import patch

    done = patch(path, found.text, group, found.encoding)
    if not done.applied:
        return None
    try:
        fix = replace(fix, edits=done.edits, diff=found.diff(path, done.edits))
        return found.as_handed_over(path, fix, with_after=bool(fix.after))
    except ValueError:  # a notebook into which they cannot be written back together
        return None
