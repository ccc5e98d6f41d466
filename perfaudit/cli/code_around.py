"""The lines around findings, for a page that shows them: read again, and only where the file still is as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfaudit.findings import Finding, Location
    from perfaudit.render.html.code import Excerpt
    from perfaudit.report import Report
    from perfaudit.static.document import Document

Reading = Callable[[str], "Document | None"]
ELLIPSIS = "…"  # at the end of a line that a finding holds, where it is longer


def code_around(report: Report, read: Reading | None = None) -> dict[Location, Excerpt]:
    """The lines around each finding that has no patch. read: what a file holds; without, that on disk."""
    from perfaudit.static.document import read_again

    read = read or read_again
    documents: dict[str, Document | None] = {}
    found: dict[Location, Excerpt] = {}
    for finding in report.findings:
        place = finding.location
        if place is None or not finding.snippet or (finding.fix is not None and finding.fix.diff):
            continue
        if place.path not in documents:
            documents[place.path] = read(place.path)
        excerpt = _around(documents[place.path], finding, place)
        if excerpt is not None:
            found[place] = excerpt
    return found


def _around(document: Document | None, finding: Finding, place: Location) -> Excerpt | None:
    """None where the line of the finding is another one by now."""
    from perfaudit.render.html.code import around
    from perfaudit.static.source.lines import NEWLINE

    if document is None:
        return None
    text = document.text
    if place.cell is not None:
        cells = document.notebook.cells if document.notebook is not None else ()
        text = next((cell.source for cell in cells if cell.number == place.cell), "")
    lines = NEWLINE.split(text)
    if place.line > len(lines) or not lines[place.line - 1].strip().startswith(finding.snippet.rstrip(ELLIPSIS)):
        return None
    return around(lines, place.line, min(place.end_line, len(lines)))
