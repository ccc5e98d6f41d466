"""GitLab's code quality report: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from perfaudit.render.complaints import COUNTER_GREW, STEP_SLOWER, complaints
from perfaudit.render.words import in_cell, json_text, place_of, printable, unused_text
from perfaudit.report import Report

# GitLab knows info, minor, major, critical and blocker; training that is slow breaks nothing, so the upper two stay unused.
_SEVERITY = {"error": "major", "warning": "minor", "info": "info", "hint": "info"}
_NO_PLACE = "."  # a path is required


def render(report: Report) -> str:
    """A list with an entry for each finding and each file that was not audited; ASCII, so that every stream takes it."""
    entries: list[dict[str, Any]] = []
    seen: Counter[str] = Counter()
    shown = printable(report)
    for complaint in complaints(shown.gate) if shown.gate is not None else []:
        if complaint.check in (COUNTER_GREW, STEP_SLOWER):
            place, key = complaint.place, _hash(complaint.check, complaint.target, complaint.counter)
            entries.append(_entry(complaint.message, complaint.check, key, "major", place.path, place.line, seen))
    for finding in shown.findings:
        found = finding.location
        path = found.path if found is not None else _NO_PLACE
        line = found.line if found is not None and found.cell is None else 1
        text = f"{finding.rule}: {in_cell(found)}{finding.message}"
        key = finding.fingerprint or _hash(finding.rule, path, finding.message)
        entries.append(_entry(text, finding.rule, key, _SEVERITY[finding.severity], path, line, seen))
    for comment in shown.unused_suppressions:
        at = place_of(comment)
        key = _hash("unused-suppression", comment.path, *comment.rules)
        line = comment.line if comment.cell is None else 1
        text = in_cell(at) + unused_text(comment)
        entries.append(_entry(text, "unused-suppression", key, "info", comment.path, line, seen))
    for item in shown.skipped:
        key = _hash("not-audited", item.path)
        entries.append(_entry(f"not audited: {item.reason}", "not-audited", key, "info", item.path, 1, seen))
    return json_text(entries)


def _entry(text: str, check: str, key: str, severity: str, path: str, line: int, seen: Counter[str]) -> dict[str, Any]:
    seen[key] += 1  # of entries with one fingerprint GitLab shows one
    return {
        "description": text,
        "check_name": check,
        "fingerprint": key if seen[key] == 1 else _hash(key, str(seen[key])),
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line}},
    }


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
