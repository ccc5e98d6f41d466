"""Annotations of GitHub Actions: one workflow command a finding, shown beside the line in a pull request.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from perfaudit.findings import Finding, Location
from perfaudit.render.complaints import STEP_SLOWER, Complaint, complaints
from perfaudit.render.gate_words import headline
from perfaudit.render.words import in_cell, place_of, printable, remarks, sentences, unused_text
from perfaudit.report import Report
from perfaudit.verdicts import Gate

_COMMAND = {"error": "error", "warning": "warning", "info": "notice", "hint": "notice"}


def render(report: Report) -> str:
    """The commands, the worst finding first: GitHub shows ten of each level a step, the others only in the log."""
    report = printable(report)
    if report.gate is None:
        lines = [_finding(finding, _COMMAND[finding.severity]) for finding in report.findings]
    else:
        lines = _gate(report.gate, report.findings)
    lines += [_command("notice", {"file": item.path, "title": "not audited"}, item.reason) for item in report.skipped]
    for item in report.unused_suppressions:
        place = place_of(item)
        lines.append(
            _command("notice", {**_place(place), "title": "unused suppression"}, in_cell(place) + unused_text(item))
        )
    lines += [_command("notice", {"title": "perfaudit"}, remark) for remark in remarks(report)]
    return "".join(f"{line}\n" for line in lines)


def _gate(gate: Gate, findings: tuple[Finding, ...]) -> list[str]:
    """What a gate complains of: losses that were measured and those with a line before new findings, these before others."""
    told = complaints(gate)
    first = [c for c in told if c.level == "error" and (c.places or c.check == STEP_SLOWER)]
    fails = gate.findings is not None and gate.findings.verdict == "regressed"
    new = [_finding(finding, "error" if fails else _COMMAND[finding.severity]) for finding in findings]
    others = [_complaint(c) for c in told if c not in first]
    said = (fails and findings) or any(c.level == "error" for c in told)
    level = "error" if gate.fails and not said else "notice"  # interrupted, or nothing was judged
    verdict = _command(level, {"title": "perfaudit gate"}, headline(gate))
    return [*(_complaint(c) for c in first), *new, *others, verdict]


def _complaint(complaint: Complaint) -> str:
    place: dict[str, object] = {}
    if complaint.places:
        place = {"file": complaint.places[0].path, "line": complaint.places[0].line}
    return _command(complaint.level, {**place, "title": complaint.check.replace("/", ": ")}, complaint.message)


def _finding(finding: Finding, command: str) -> str:
    properties = {**_place(finding.location), "title": f"{finding.rule} {finding.name}"}
    message = in_cell(finding.location) + "\n".join(sentences(finding))
    return _command(command, properties, message)


def _place(place: Location | None) -> dict[str, object]:
    """File, lines and columns; only the file of a notebook, whose lines are counted within a cell."""
    if place is None:
        return {}
    if place.cell is not None:
        return {"file": place.path}
    lines: dict[str, object] = {"file": place.path, "line": place.line, "endLine": place.end_line}
    if place.line != place.end_line:  # GitHub refuses columns over several lines
        return lines
    return {**lines, "col": place.column, "endColumn": max(place.column, place.end_column - 1)}  # of the last character


def _command(name: str, properties: dict[str, object], message: str) -> str:
    written = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{name} {written}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
