"""One line a finding, `path:line:column: rule message (lines 3, 9)`, as compilers print them, so that editors can jump to it."""

from __future__ import annotations

from dataclasses import replace

from perfaudit.findings import Finding
from perfaudit.render.words import lines_of, one_line, place_of, remarks, saving_text, unused_text
from perfaudit.report import Report


def render(report: Report) -> str:
    """The lines; empty when there is nothing to say. What has no place begins with "perfaudit", as GNU programs do."""
    lines = [_finding(finding) for finding in report.findings]
    lines += [f"{item.path}: not audited: {item.reason}" for item in report.skipped]
    lines += [f"{place_of(item)}: {unused_text(item)}" for item in report.unused_suppressions]
    lines += [f"perfaudit: {remark}" for remark in remarks(report)]
    return "".join(one_line(line) + "\n" for line in lines)


def _finding(finding: Finding) -> str:
    place = finding.location
    where = str(replace(place, path=one_line(place.path))) if place is not None else "perfaudit"
    also = f" ({lines_of(finding.places)})" if len(finding.places) > 1 else ""
    saving = finding.saving
    worth = f"; {saving_text(saving)}" if saving is not None and saving.basis in ("measured", "screened") else ""
    return f"{where}: {finding.rule} {finding.message}{also}{worth}"
