"""Findings of traces beside those of the scanner: the line that the same rule finds, and the patch that removes it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path, PurePosixPath

from perfaudit.findings import Finding
from perfaudit.report import Report

MOST_NAMED = 3  # findings of the scanner beside one of the trace
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


def join_with_code(report: Report, source: list[Path]) -> Report:
    """The report with, for each finding, what a scan of these files finds for the same cause; nothing of the files is run.

    What the scan finds in the function that the trace names takes the trace's place, with its patch. Elsewhere it is only named.
    """
    from perfaudit.cli.scanning import Plan

    plan = Plan.of([str(path) for path in source], None, (), (), "hint", False, 0, False, False, False, [])
    scan = plan.scan_as_asked()
    return report.with_(findings=tuple(_with_code(finding, scan.findings) for finding in report.findings))


def _with_code(finding: Finding, found: tuple[Finding, ...]) -> Finding:
    same = [one for one in found if finding.rule in (one.rule, *one.also)]
    same += [one for one in found if one.rule in _SAME_CAUSE.get(finding.rule, ()) and one not in same]
    same = [one for one in same if one.location is not None]
    here = [one for one in same if _is_at(finding, one)]
    chosen = (here or same)[:MOST_NAMED]
    if not chosen:
        return finding
    words = "; ".join(f"{one.location} {one.rule} {one.name}{_patch(one)}" for one in chosen)
    more = len(here or same) - len(chosen)
    words += f"; and {more} more" if more else ""
    how = "In this function the scanner finds" if here else "In the code the scanner finds, for causes of this kind"
    note = ". ".join(part for part in (finding.note, f"{how}: {words}") if part)
    if not here:
        return finding.with_(note=note)  # whether the trace shows this place is not known
    best = chosen[0]
    return finding.with_(note=note, location=best.location, fix=best.fix)


def _patch(finding: Finding) -> str:
    fix = finding.fix
    if fix is None:
        return ""
    return f" (patch: {fix.title})" if fix.diff else f" ({fix.title})"


def _is_at(finding: Finding, other: Finding) -> bool:
    """Whether the scanner's finding lies in the function that the trace names, whose paths are those of another machine."""
    mine, theirs = finding.location, other.location
    if mine is None or theirs is None:
        return False
    parts = PurePosixPath(mine.path).parts[-2:]
    their_parts = PurePosixPath(theirs.path).parts[-2:]
    same_file = parts == their_parts or (parts[-1] == their_parts[-1] and 1 in (len(parts), len(their_parts)))
    return same_file and _function_at(theirs.path, mine.line) == _function_at(theirs.path, theirs.line)


def _function_at(path: str, line: int) -> tuple[int, int] | None:
    """First and last line of the innermost function around a line; None at the top of a module."""
    around = [(first, last) for first, last in _functions(path) if first <= line <= last]
    return max(around, default=None)


@cache
def _functions(path: str) -> tuple[tuple[int, int], ...]:
    """First and last line of each function of a file; () for what cannot be parsed, of which the scanner finds nothing either."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return tuple((node.lineno, node.end_lineno or node.lineno) for node in functions)
