"""The static scan: files found, read, checked, with a fault of one file as a result. Never runs what it reads."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from perfaudit.config import is_suppressed, suppressions
from perfaudit.findings import Finding
from perfaudit.report import Report, Skipped
from perfaudit.rules import all_rules
from perfaudit.static import discover
from perfaudit.static.registry import run_checks
from perfaudit.static.source import FUNCTIONS, Source, Unreadable, read_text


def scan(
    paths: Iterable[str],
    selected: frozenset[str] | None = None,
    exclude: tuple[str, ...] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """The findings of files and folders, in order of path and place.

    selected: rule ids, None for all. progress: called with (files done, files in all).
    Raises UserError for a path that does not exist.
    """
    files = discover.python_files(paths, exclude)
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    looked_at = 0
    for number, file in enumerate(files):
        if progress is not None:
            progress(number, len(files))
        result = scan_file(file.path, file.shown_as, selected, always_parse=file.named)
        if isinstance(result, Skipped):
            skipped.append(result)
        else:
            looked_at += 1
            findings += result
    if progress is not None:
        progress(len(files), len(files))
    return Report("scan", tuple(findings), tuple(skipped), looked_at)


def scan_file(
    path: Path, shown_as: str, selected: frozenset[str] | None = None, always_parse: bool = True
) -> list[Finding] | Skipped:
    """Findings of one file, or why it could not be audited. Without `always_parse` a text that lacks "torch" is not parsed."""
    try:
        text, _ = read_text(path)
        if not always_parse and "torch" not in text:
            return []
        return scan_text(text, shown_as, selected)
    except Unreadable as problem:
        return Skipped(shown_as, str(problem))
    except RecursionError:
        return Skipped(shown_as, "nested too deeply to audit")


def scan_text(text: str, shown_as: str, selected: frozenset[str] | None = None) -> list[Finding]:
    """Findings in one text. Raises Unreadable when it does not parse."""
    source = Source(shown_as, text)
    if not source.imports_torch and "torch" not in text:
        return []
    findings = run_checks(source, all_rules(), selected)
    if findings:
        silenced = suppressions(text)
        findings = [finding for finding in findings if not is_suppressed(finding, silenced)]
    return with_fingerprints(source, findings)


def with_fingerprints(source: Source, findings: list[Finding]) -> list[Finding]:
    """The findings, each with a fingerprint that stays when lines move.

    Hash of rule, path, enclosing scope and the statement without white space, with a running number for equal ones.
    """
    seen: Counter[str] = Counter()
    marked = []
    statements: dict[int, tuple[str, str]] = {}
    for finding in findings:
        if finding.location is None:
            marked.append(finding)
            continue
        if not statements:
            statements = _statement_by_line(source)
        statement, scope = statements.get(finding.location.line, ("", ""))
        key = "\0".join((finding.rule, source.path, scope, re.sub(r"\s+", "", statement)))
        seen[key] += 1
        digest = hashlib.sha256(f"{key}\0{seen[key]}".encode()).hexdigest()[:20]
        marked.append(finding.with_(fingerprint=digest))
    return marked


def _statement_by_line(source: Source) -> dict[int, tuple[str, str]]:
    """For each line, the text of the first line of the innermost statement that covers it, and its scope's name."""
    import ast

    table: dict[int, tuple[str, str]] = {}

    def visit(body: list[ast.stmt], scope: str) -> None:
        for statement in body:
            children = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
            children += [handler.body for handler in getattr(statement, "handlers", [])]
            compound = any(children)
            text = source.lines[statement.lineno - 1] if compound else source.text_of(statement)
            for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                table[line] = (text, scope)
            named = isinstance(statement, (*FUNCTIONS, ast.ClassDef))
            for child in children:
                visit(child, f"{scope}.{statement.name}" if named else scope)  # type: ignore[attr-defined]  # named

    visit(source.tree.body, "")
    return table
