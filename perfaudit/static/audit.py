"""One file audited: read, checked, silenced, with fingerprints; a fault of the file is a result. Never runs what it reads."""

from __future__ import annotations

import ast
import bisect
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from perfaudit.findings import Finding, Fix
from perfaudit.reading import digest
from perfaudit.records import field, record, replace
from perfaudit.report import Skipped, UnusedSuppression
from perfaudit.rules import Rule
from perfaudit.static.document import Document, read_document
from perfaudit.static.project import Project
from perfaudit.static.project.asked import Asked
from perfaudit.static.registry import join_findings, run_what_works
from perfaudit.static.source import FUNCTIONS, Source, Unreadable
from perfaudit.static.suppress import silence, suppressions

MAX_REHASHED = 32 << 20  # characters of a file, once for each of its fixes: about 0.1 s; above, fixes have no `after`

Statements = dict[int, tuple[ast.stmt, str]]  # by line: the innermost statement there and the name of its scope


@record(frozen=True, slots=True)
class Audited:
    """What one file gave. `asked` is what else of the project the findings depend on, None where they depend on nothing."""

    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    unused: tuple[UnusedSuppression, ...] = ()
    looked_at: bool = True
    asked: Asked = field(default_factory=Asked)


def audit_file(
    path: Path, shown_as: str, rules: Mapping[str, Rule], selected: frozenset[str], project: Project | None = None
) -> Audited:
    """Findings of one file, or why it could not be audited."""
    try:
        return audit(read_document(path), path, shown_as, rules, selected, project)
    except Unreadable as problem:
        return Audited(skipped=(Skipped(shown_as, str(problem)),), looked_at=False)


def audit(
    document: Document,
    path: Path,
    shown_as: str,
    rules: Mapping[str, Rule],
    selected: frozenset[str],
    project: Project | None = None,
) -> Audited:
    """Findings of one document that is, or would be, at this path. Raises Unreadable when it does not parse."""
    neighbours = project.seen_from(path) if project else None
    try:
        source = Source(shown_as, document.text, neighbours)
        findings, failures = run_what_works(source, rules, selected)
        kept, unused = _findings_to_report(source, findings, rules, selected)
        kept = join_findings(kept)
    except RecursionError:
        return Audited(skipped=(Skipped(shown_as, "nested too deeply to audit"),), looked_at=False)
    skipped = tuple(Skipped(shown_as, str(failure)) for failure in failures)
    if document.notebook is not None:
        kept = [_in_cells(document, finding) for finding in kept]
        unused = [_comment_in_cell(document, comment) for comment in unused]
        problems = document.notebook.problems
        skipped += tuple(Skipped(shown_as, f"cell {number}: {reason}") for number, reason in problems)
    asked = neighbours.asked if neighbours else Asked()
    kept = _handed_over(document, kept)
    return Audited(tuple(kept), skipped, tuple(unused), asked=asked)


def _findings_to_report(
    source: Source, findings: list[Finding], rules: Mapping[str, Rule], selected: frozenset[str]
) -> tuple[list[Finding], list[UnusedSuppression]]:
    comments = suppressions(source.text, selected)
    if not findings and not comments:
        return [], []
    statements = _statement_by_line(source, findings)
    marked = _with_fingerprints(source, findings, statements)
    if not comments:
        return marked, []
    with_lines = [(finding, _ends(finding, statements)) for finding in marked]
    return silence(with_lines, comments, source.path, rules, selected)


def _handed_over(document: Document, findings: list[Finding]) -> list[Finding]:
    """The findings, their fixes with all that is needed to apply them later."""
    fixed = sum(finding.fix is not None and bool(finding.fix.edits) for finding in findings)
    with_after = fixed * len(document.raw) <= MAX_REHASHED

    def handed_over(finding: Finding) -> Finding:
        fix = finding.fix
        if fix is not None and fix.edits and finding.location is not None:
            fix = document.as_handed_over(finding.location.path, fix, with_after)
        return finding.with_(fix=fix, parts=tuple(map(handed_over, finding.parts)))

    return [handed_over(finding) if finding.fix is not None or finding.parts else finding for finding in findings]


def _in_cells(document: Document, finding: Finding) -> Finding:
    parts = tuple(_in_cell(document, part) for part in finding.parts)
    return _in_cell(document, finding).with_(parts=parts)


def _in_cell(document: Document, finding: Finding) -> Finding:
    """The finding of a notebook with its places by cell and the diff of the file itself."""
    fix = finding.fix
    if fix is not None and fix.edits:
        try:
            diff = document.diff(finding.location.path if finding.location else "", fix.edits)
            fix = Fix(fix.title, fix.safety, fix.changes, fix.edits, diff)
        except ValueError:
            fix = Fix(fix.title, "manual")
    place = document.place(finding.location) if finding.location else None
    return finding.with_(location=place, fix=fix, places=tuple(document.place(p) for p in finding.places))


def _comment_in_cell(document: Document, comment: UnusedSuppression) -> UnusedSuppression:
    assert document.notebook is not None
    cell = document.notebook.cell_of_line(comment.line)
    return replace(comment, line=comment.line - cell.first_line + 1, cell=cell.number)


def _ends(finding: Finding, statements: Statements) -> set[int]:
    """The first and the last line of a finding; only the first where the last belongs to a statement inside it."""
    if finding.location is None:
        return set()
    first, last = finding.location.line, finding.location.end_line
    same = first in statements and last in statements and statements[first][0] is statements[last][0]
    return {first, last} if same else {first}


def _with_fingerprints(source: Source, findings: list[Finding], statements: Statements) -> list[Finding]:
    """The findings, each with a fingerprint that stays when lines move, and a digest that stays when the file moves.

    Hash of rule, path (not in the digest), enclosing scope and the statement without white space, with a running number
    for equal ones.
    """
    seen: Counter[str] = Counter()
    keys: dict[tuple[str, int], str] = {}  # one statement can be long and hold thousands of findings
    marked = []
    for finding in findings:
        if finding.location is None:
            marked.append(finding)
            continue
        statement, scope = statements.get(finding.location.line, (None, ""))
        place = (finding.rule, id(statement))
        if place not in keys:
            text = _own_text(source, statement) if statement is not None else ""
            keys[place] = "\0".join((finding.rule, scope, re.sub(r"\s+", "", text)))
        key = keys[place]
        seen[key] += 1
        numbered = f"{key}\0{seen[key]}"
        marked.append(finding.with_(fingerprint=_hash(f"{source.path}\0{numbered}"), text_digest=_hash(numbered)))
    return marked


def _hash(text: str) -> str:
    return digest(text.encode("utf-8", "surrogatepass"))[:20]


def _own_text(source: Source, statement: ast.stmt) -> str:
    """The text of a simple statement, the first line of one that holds others."""
    return source.lines[statement.lineno - 1] if any(_blocks(statement)) else source.text_of(statement)


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    return blocks + [part.body for name in ("handlers", "cases") for part in getattr(statement, name, [])]


def _statement_by_line(source: Source, findings: list[Finding]) -> Statements:
    """For each line on which a finding begins or ends, the innermost statement that covers it, and the name of its scope."""
    places = [finding.location for finding in findings if finding.location is not None]
    wanted = sorted({line for place in places for line in (place.line, place.end_line)})
    table: Statements = {}
    waiting = [(source.tree.body, "")] if wanted else []
    while waiting:  # outer statements first, so that inner ones replace them
        body, scope = waiting.pop()
        for statement in body:
            first = bisect.bisect_left(wanted, statement.lineno)
            covered = wanted[first : bisect.bisect_right(wanted, statement.end_lineno or statement.lineno)]
            if not covered:
                continue
            table.update((line, (statement, scope)) for line in covered)
            inside = f"{scope}.{statement.name}" if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) else scope
            waiting += [(block, inside) for block in _blocks(statement)]
    return table
