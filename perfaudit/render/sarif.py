"""SARIF 2.1.0, what GitHub code scanning and many editors read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/sarif-v2.1.0-errata01-os-complete.html
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from perfaudit import __version__
from perfaudit.findings import Edit, Finding, Fix, Location, Span
from perfaudit.render import gate_sarif
from perfaudit.render.words import (
    fix_title,
    in_cell,
    json_text,
    place_of,
    printable,
    remarks,
    sentences,
    signs,
    unused_text,
)
from perfaudit.report import Json, Report
from perfaudit.rules import Rule, all_rules

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVEL = {"error": "error", "warning": "warning", "info": "note", "hint": "note"}
# GitHub orders alerts by it.
_PROBLEM = {"error": "error", "warning": "warning", "info": "recommendation", "hint": "recommendation"}
_ROOT = "%SRCROOT%"
_NOT_AUDITED, _UNUSED = "not-audited", "unused-suppression"
_NOTIFICATIONS = {_NOT_AUDITED: "A file that could not be audited.", _UNUSED: "A comment that silences nothing."}


def render(report: Report, rules: Mapping[str, Rule] | None = None) -> str:
    """One log with one run; ASCII, so that every stream takes it.

    rules: by id, those of the installed rule files if None. All of them are listed, found or not: consumers take a rule
    that is gone for one that was dropped.
    """
    known = all_rules() if rules is None else rules
    unknown = {f.rule: {"id": f.rule, "name": f.name} for f in report.findings if f.rule not in known}
    described = {id_: _rule(rule) for id_, rule in known.items()} | unknown
    if report.gate is not None:
        described |= gate_sarif.rules()
    index = {id_: number for number, id_ in enumerate(described)}
    shown = printable(report)
    judged = []
    if report.gate is not None and shown.gate is not None:
        judged = gate_sarif.results(report.gate, shown.gate, index, _artifact)
    driver = {
        "name": "perfaudit",
        "version": __version__,
        "rules": list(described.values()),
        "notifications": [{"id": id_, "shortDescription": {"text": text}} for id_, text in _NOTIFICATIONS.items()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The folder in which perfaudit was started."}}},
        "invocations": [_invocation(report, shown)],
        "results": [
            *judged,
            *(
                _result(found, seen, index[found.rule])
                for found, seen in zip(report.findings, shown.findings, strict=True)
            ),
        ],
    }
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(rule: Rule) -> Json:
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": f"{rule.title}."},
        "fullDescription": {"text": rule.why},
        "help": {"text": "\n\n".join([rule.why, *rule.sources]), "markdown": _help(rule)},
        "defaultConfiguration": {"level": _LEVEL[rule.reported_as]},
        "properties": {"tags": ["performance", rule.area], "problem.severity": _PROBLEM[rule.reported_as]},
    }


def _help(rule: Rule) -> str:
    """The rule's page in Markdown: why, an example, what the fix changes, sources."""
    example = next((example for example in rule.examples if example.lines), None)
    parts = [rule.why]
    if example is not None:
        parts.append(f"Reported:\n\n{_python(example.text)}")
    if example is not None and example.fixed is not None:
        changes = f"also changes {', '.join(rule.changes)}" if rule.changes else "nothing but speed changes"
        parts.append(f"After the fix ({rule.fix}: {changes}):\n\n{_python(example.fixed)}")
    parts += ["\n".join(f"- {source}" for source in rule.sources), f"`perfaudit explain {rule.id}` shows more."]
    return "\n\n".join(parts) + "\n"


def _python(text: str) -> str:
    return f"```python\n{text.strip()}\n```"


def _result(finding: Finding, shown: Finding, index: int) -> Json:
    """One finding; `shown` is the same with signs in its words, while paths and patches stay exact."""
    place = finding.location
    result: Json = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVEL[finding.severity],
        "message": {"text": in_cell(place) + ".\n".join(sentences(shown))},
        "locations": [_location(place)] if place is not None else [],
    }
    if len(finding.places) > 1:
        result["relatedLocations"] = [_location(other) for other in finding.places if other != place]
    if finding.fingerprint:  # `primaryLocationLineHash`, which GitHub reads, is left to the action that uploads
        result["partialFingerprints"] = {"perfaudit/v1": finding.fingerprint}
    if place is not None and place.cell is None and finding.fix is not None and finding.fix.edits:
        result["fixes"] = [_fix(place.path, finding.fix)]
    if finding.saving is not None:
        result["properties"] = {"saving": dataclasses.asdict(finding.saving)}
    return result


def _location(place: Location) -> Json:
    """Where it is; in a notebook only the file and the cell, because lines are counted within the cell."""
    physical: Json = {"artifactLocation": _artifact(place.path)}
    if place.cell is not None:
        return {"physicalLocation": physical, "logicalLocations": [{"name": f"cell {place.cell}", "kind": "module"}]}
    physical["region"] = _region(place)
    return {"physicalLocation": physical}


def _region(place: Location) -> Json:
    return {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }


def _artifact(path: str) -> Json:
    uri = quote(os.fsencode(path))
    return {"uri": f"file://{uri}"} if path.startswith("/") else {"uri": uri, "uriBaseId": _ROOT}


def _fix(path: str, fix: Fix) -> Json:
    change = {"artifactLocation": _artifact(path), "replacements": _replacements(fix.edits)}
    return {"description": {"text": signs(fix_title(fix))}, "artifactChanges": [change]}


def _replacements(edits: Iterable[Edit]) -> list[Json]:
    """What each edit replaces by what; those that touch are one, because regions must not meet."""
    found: list[Edit] = []
    for edit in sorted(dict.fromkeys(edits), key=lambda edit: edit.span):
        if found and found[-1].span.end == edit.span.start:
            edit = _as_one(found.pop(), edit)
        found.append(edit)
    return [
        {"deletedRegion": _region(e.place), "insertedContent": {"text": e.text}} for e in found if e.place is not None
    ]


def _as_one(first: Edit, second: Edit) -> Edit:
    place = first.place
    if place is not None and second.place is not None:
        place = dataclasses.replace(place, end_line=second.place.end_line, end_column=second.place.end_column)
    return Edit(Span(first.span.start, second.span.end), first.text + second.text, place)


def _invocation(report: Report, shown: Report) -> Json:
    notifications: list[Json] = [
        {
            "descriptor": {"id": _NOT_AUDITED},
            "level": "warning",
            "message": {"text": seen.reason},
            "locations": [{"physicalLocation": {"artifactLocation": _artifact(found.path)}}],
        }
        for found, seen in zip(report.skipped, shown.skipped, strict=True)
    ]
    notifications += [
        {
            "descriptor": {"id": _UNUSED},
            "level": "note",
            "message": {"text": in_cell(place_of(item)) + unused_text(seen)},
            "locations": [_location(place_of(item))],
        }
        for item, seen in zip(report.unused_suppressions, shown.unused_suppressions, strict=True)
    ]
    notifications += [{"level": "note", "message": {"text": remark}} for remark in remarks(shown)]
    notifications += gate_sarif.notifications(shown.gate) if shown.gate is not None else []
    failed = report.gate is not None and report.gate.verdict in ("failed", "not_judged")
    return {"executionSuccessful": not report.interrupted and not failed, "toolExecutionNotifications": notifications}
