"""Markdown for a job's summary or a comment: the findings as a table, measurements and patches folded away."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from perfaudit.findings import SEVERITIES, Finding, Fix
from perfaudit.render import gate_tables, tables
from perfaudit.render.ladder import headline, ladder, offer_text
from perfaudit.render.ladder_details import details
from perfaudit.render.paint import plain
from perfaudit.render.words import (
    count,
    distrust,
    fix_title,
    one_line,
    place_of,
    printable,
    remarks,
    sentences,
    unused_text,
)
from perfaudit.report import Report

LIMIT = 1_000_000  # bytes; GitHub refuses more than 1 MiB a step, and other commands of the step may write there too
_CODE = re.compile(r"(`[^`]+`)")
_TICKED = re.compile(r"`([^`]+)`")
_SPECIAL = re.compile(r"([\\`*_\[\]<>~&$])")


def render(report: Report) -> str:
    """The page, `LIMIT` bytes at most; what did not fit is counted in its last line."""
    report = printable(report)
    if report.command == "trace":
        from perfaudit.render import trace_markdown  # which writes with what is here

        return _within(LIMIT, *trace_markdown.parts(report, _text, _code))
    if report.command == "doctor":
        from perfaudit.render.machine import markdown_parts

        return _within(LIMIT, *markdown_parts(report, _text))
    gate = report.gate
    head = [f"## perfaudit {report.command}\n\n{_total(report)}\n"]
    if gate is not None:
        head = [gate_tables.opening(gate, _text), gate_tables.findings_heading(gate, _text)]
    if report.findings:
        head.append("\n| severity | place | rule | what is there |\n|---|---|---|---|\n")
    rows = [_row(finding) for finding in report.findings]
    if gate is not None:
        rows += gate_tables.rows(gate, _text)
    notes = ["\n", *(f"- not audited: {_code(item.path)}: {_text(item.reason)}\n" for item in report.skipped)]
    notes += [f"- {_code(str(place_of(item)))}: {_text(unused_text(item))}\n" for item in report.unused_suppressions]
    said = remarks(report)
    if report.ladder is not None:  # its head says some of them
        said = [remark for remark in said if remark not in (report.ladder.not_learning, distrust(report))]
    notes += [f"- {_text(remark)}\n" for remark in said]
    folded = _measurements(report) if gate is None else []
    if gate is not None and (everything := gate_tables.everything(report)):
        folded.append(
            _fold_away("What the gate counted and measured", everything, "text", is_open=gate.kind == "self_test")
        )
    folded += [_patch(finding, finding.fix) for finding in report.findings if finding.fix and finding.fix.diff]
    return _within(LIMIT, head, rows, notes if len(notes) > 1 else [], folded)


def _within(limit: int, *groups: Iterable[str]) -> str:
    """The parts of all groups, up to the first that does not fit; then no more, and a line that says how many."""
    parts = [part for group in groups for part in group]
    room, taken = limit - 200, 0  # bytes; for the line that says so
    for part in parts:
        room -= len(part.encode())
        if room < 0:
            break
        taken += 1
    if taken == len(parts):
        return "".join(parts)
    left = len(parts) - taken
    return (
        "".join(parts[:taken]) + f"\n**Cut here: {left} more entries would not fit; `--format json` has them all.**\n"
    )


def _total(report: Report) -> str:
    if report.ladder is not None:
        told = "".join(f"\n\n**{_text(said)}**" for said in (report.ladder.not_learning, distrust(report)) if said)
        told = (f"\n\n{_text(offer)}" if (offer := offer_text(report)) else "") + told
        return f"**{_text(headline(report, with_names=True))}**{told}\n\n{_code(report.target)}"
    if report.command == "tune":
        return _code(report.target)
    skipped = f", {len(report.skipped)} not audited" if report.skipped else ""
    files = f"in {count(report.files, 'file')}{skipped}"
    if not report.findings:
        return f"**Nothing found** {files}"
    numbers = {severity: sum(f.severity == severity for f in report.findings) for severity in SEVERITIES}
    parts = [count(n, severity, severity if severity == "info" else "") for severity, n in numbers.items() if n]
    return f"**{count(len(report.findings), 'finding')}** {files}: {', '.join(parts)}"


def _row(finding: Finding) -> str:
    place = _code(str(finding.location)) if finding.location is not None else "(no source line)"
    said = "<br>".join(_text(sentence) for sentence in sentences(finding))
    cells = (finding.severity, place, _text(f"{finding.rule} {finding.name}"), said)
    return "".join("| " + cell.replace("|", "\\|") + " " for cell in cells) + "|\n"  # in code, too, a pipe ends a cell


def _patch(finding: Finding, fix: Fix) -> str:
    place = f"{finding.location} " if finding.location is not None else ""
    return _fold_away(f"{place}{finding.rule} {fix_title(fix)}", fix.diff, "diff")


def _measurements(report: Report) -> list[str]:
    """What was measured, as text: of a climb the ladder, and its details folded away."""
    machine = [tables.environment(report, plain, 100)] if report.environment is not None else []
    if report.ladder is not None:
        more = "\n".join(text for _, text in details(report, plain, 100))
        parts = [*machine, *ladder(report, plain, 100)]
        shown = [_fold_away("The ladder and its patch", "\n".join(parts), "text", is_open=True)] if parts else []
        return [*shown, *([_fold_away("Details", more, "text")] if more else [])]
    if not machine:
        return []
    parts = [*machine, *tables.knobs(report, plain, 100)]
    return [_fold_away("What was measured", "\n".join(parts), "text", is_open=report.command == "tune")]


def _fold_away(title: str, text: str, language: str, is_open: bool = False) -> str:
    fence, tag = _fence(text, 3), "<details open>" if is_open else "<details>"
    title = _TICKED.sub(
        r"<code>\1</code>", html.escape(one_line(title), quote=False)
    )  # no Markdown is read in a summary
    return f"\n{tag}<summary>{title}</summary>\n\n{fence}{language}\n{text}{fence}\n\n</details>\n"


def _text(text: str) -> str:
    """Words as they are and code in backticks as code: nothing of it is markup."""
    parts = _CODE.split(one_line(text))
    return "".join(
        _code(part[1:-1]) if number % 2 else _SPECIAL.sub(r"\\\1", part) for number, part in enumerate(parts)
    )


def _code(text: str) -> str:
    text = one_line(text)
    fence = _fence(text, 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _fence(text: str, least: int) -> str:
    """Backticks that do not occur in the text."""
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])
