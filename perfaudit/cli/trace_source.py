"""Findings of traces beside those of the scanner: the line that the same rule finds, and the patch that removes it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from perfaudit.findings import Finding
from perfaudit.report import Report

NEAR = 40  # lines from the line of a trace to that of a finding, in one function
_SAME_CAUSE = {  # rules of traces whose cause other rules find in code
    "PA901": ("PA101", "PA103", "PA106", "PA107", "PA108"),
    "PA902": ("PA306", "PA402", "PA403", "PA105", "PA404", "PA210"),
    "PA903": ("PA702", "PA703", "PA704", "PA708"),
    "PA904": ("PA707", "PA605"),
    "PA905": ("PA707",),
    "PA906": ("PA602", "PA207"),
    "PA907": ("PA105", "PA106", "PA107"),
    "PA102": ("PA101", "PA104"),
    "PA601": ("PA603", "PA604", "PA407"),
}


def joined(report: Report, source: list[Path]) -> Report:
    """The report with, for each finding, what a scan of these files finds for the same cause; nothing of the files is run."""
    from perfaudit.cli.scanning import Plan

    plan = Plan.of([str(path) for path in source], None, (), (), "hint", False, 0, False, False, False, [])
    scan = plan.scanned()
    return report.with_(findings=tuple(_with_code(finding, scan.findings) for finding in report.findings))


def _with_code(finding: Finding, found: tuple[Finding, ...]) -> Finding:
    same = [one for one in found if finding.rule in (one.rule, *one.also)]
    same += [one for one in found if one.rule in _SAME_CAUSE.get(finding.rule, ()) and one not in same]
    same = [one for one in same if one.location is not None]
    at_line = [one for one in same if _is_at(finding, one)]
    chosen = (at_line or same)[:3]
    if not chosen:
        return finding
    words = "; ".join(f"{one.location} {one.rule} {one.name}{_patch(one)}" for one in chosen)
    how = "the scanner finds here" if at_line else "the scanner finds in the code"
    best = chosen[0]
    return finding.with_(
        note=". ".join(part for part in (finding.note, f"{how}: {words}") if part),
        location=best.location if at_line or finding.location is None else finding.location,
        fix=best.fix if best.rule == finding.rule or at_line else finding.fix,
    )


def _patch(finding: Finding) -> str:
    fix = finding.fix
    if fix is None:
        return ""
    return f" (patch: {fix.title})" if fix.diff else f" ({fix.title})"


def _is_at(finding: Finding, other: Finding) -> bool:
    """Whether the scanner's finding lies near the source line of the trace, whose paths are those of another machine."""
    mine, theirs = finding.location, other.location
    if mine is None or theirs is None:
        return False
    parts = PurePosixPath(mine.path).parts[-2:]
    their_parts = PurePosixPath(theirs.path).parts[-2:]
    same_file = parts == their_parts or (parts[-1] == their_parts[-1] and 1 in (len(parts), len(their_parts)))
    return same_file and abs(mine.line - theirs.line) <= NEAR
