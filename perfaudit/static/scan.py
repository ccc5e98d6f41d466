"""The static scan: files found, read, checked, with a fault of one file as a result. Never runs what it reads."""

from __future__ import annotations

import ast
import contextlib
import gc
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from perfaudit.config import is_suppressed, suppressions
from perfaudit.findings import Finding
from perfaudit.report import Report, Skipped
from perfaudit.rules import all_rules
from perfaudit.static import discover
from perfaudit.static.fix import unfixed
from perfaudit.static.registry import run_checks
from perfaudit.static.source import FUNCTIONS, Source, Unreadable, read_text

STRAY_LINK = "a link, whose target is left as it is; name this very file to patch it"
Statements = dict[int, tuple[ast.stmt, str]]  # by line: the innermost statement there and the name of its scope


def scan(
    paths: Iterable[str],
    selected: frozenset[str] | None = None,
    exclude: tuple[str, ...] = (),
    progress: Callable[[int, int], None] | None = None,
    base: Path | None = None,
) -> Report:
    """The findings of files and folders, in order of path and place.

    selected: rule ids, None for all. exclude: patterns as in `.gitignore`, relative to `base`, the working directory
    if it is None. progress: called with (files done, files in all).
    Raises UserError for a path that does not exist.
    """
    files = discover.python_files(paths, exclude, base)
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    looked_at = 0
    with _collecting_seldom() as collect:
        for number, file in enumerate(files):
            if progress is not None:
                progress(number, len(files))
            if file.problem:
                skipped.append(Skipped(file.shown_as, file.problem))
                continue
            result = scan_file(file.path, file.shown_as, selected, always_parse=file.named)
            if isinstance(result, Skipped):
                skipped.append(result)
            else:
                looked_at += 1
                findings += [unfixed(f, STRAY_LINK) for f in result] if file.is_stray_link else result
            if number % 100 == 99:
                collect()
    if progress is not None:
        progress(len(files), len(files))
    return Report("scan", tuple(findings), tuple(skipped), looked_at)


@contextlib.contextmanager
def _collecting_seldom() -> Iterator[Callable[[], object]]:
    """Without automatic garbage collection, which took two thirds of the time of parsing 2,000 files."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield gc.collect
    finally:
        if was_on:
            gc.enable()


def scan_file(
    path: Path, shown_as: str, selected: frozenset[str] | None = None, always_parse: bool = True
) -> list[Finding] | Skipped:
    """Findings of one file, or why it could not be audited. Without `always_parse` a text that lacks "torch" is not parsed."""
    if path.suffix == ".ipynb":
        return Skipped(shown_as, "a notebook; `jupyter nbconvert --to script` makes a Python file of it")
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
    if not findings:
        return []
    statements = _statement_by_line(source)
    silenced = suppressions(text)
    marked = _with_fingerprints(source, findings, statements)
    return [finding for finding in marked if not is_suppressed(finding, silenced, _ends(finding, statements))]


def _ends(finding: Finding, statements: Statements) -> set[int]:
    """The first and the last line of a finding; only the first where the last belongs to a statement inside it."""
    if finding.location is None:
        return set()
    first, last = finding.location.line, finding.location.end_line
    same = first in statements and last in statements and statements[first][0] is statements[last][0]
    return {first, last} if same else {first}


def _with_fingerprints(source: Source, findings: list[Finding], statements: Statements) -> list[Finding]:
    """The findings, each with a fingerprint that stays when lines move.

    Hash of rule, path, enclosing scope and the statement without white space, with a running number for equal ones.
    """
    seen: Counter[str] = Counter()
    marked = []
    for finding in findings:
        if finding.location is None:
            marked.append(finding)
            continue
        statement, scope = statements.get(finding.location.line, (None, ""))
        text = _own_text(source, statement) if statement is not None else ""
        key = "\0".join((finding.rule, source.path, scope, re.sub(r"\s+", "", text)))
        seen[key] += 1
        digest = hashlib.sha256(f"{key}\0{seen[key]}".encode("utf-8", "surrogatepass")).hexdigest()[:20]
        marked.append(finding.with_(fingerprint=digest))
    return marked


def _own_text(source: Source, statement: ast.stmt) -> str:
    """The text of a simple statement, the first line of one that holds others."""
    return source.lines[statement.lineno - 1] if any(_blocks(statement)) else source.text_of(statement)


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    return blocks + [part.body for name in ("handlers", "cases") for part in getattr(statement, name, [])]


def _statement_by_line(source: Source) -> Statements:
    """For each line, the innermost statement that covers it, and the name of its scope."""
    table: Statements = {}
    waiting = [(source.tree.body, "")]
    while waiting:  # outer statements first, so that inner ones replace them
        body, scope = waiting.pop()
        for statement in body:
            for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                table[line] = (statement, scope)
            inside = f"{scope}.{statement.name}" if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) else scope
            waiting += [(block, inside) for block in _blocks(statement)]
    return table
