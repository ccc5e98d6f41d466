"""`--statistics`: how many findings each rule has, and how many of them have a patch."""

from __future__ import annotations

import json
from collections import Counter

from perfaudit.report import Report


def rows(report: Report) -> list[dict[str, object]]:
    """One row for each rule that found something, the most frequent first."""
    found = Counter(finding.rule for finding in report.findings)
    patched = Counter(f.rule for f in report.findings if f.fix is not None and f.fix.edits)
    safe = Counter(f.rule for f in report.findings if f.fix is not None and f.fix.edits and f.fix.safety == "safe")
    files = {rule: len({f.location.path for f in report.findings if f.rule == rule and f.location}) for rule in found}
    names = {finding.rule: finding.name for finding in report.findings}
    return [
        {
            "rule": rule,
            "name": names[rule],
            "findings": n,
            "files": files[rule],
            "fixes": patched[rule],
            "safe": safe[rule],
        }
        for rule, n in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    ]


def as_text(report: Report) -> str:
    table = rows(report)
    if not table:
        return f"nothing found in {report.files} file{'' if report.files == 1 else 's'}\n"
    lines = [f"{'findings':>8}  {'files':>5}  {'fixes':>5}  {'safe':>4}  rule"]
    for row in table:
        numbers = f"{row['findings']:>8}  {row['files']:>5}  {row['fixes']:>5}  {row['safe']:>4}"
        lines.append(f"{numbers}  {row['rule']} {row['name']}")
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> str:
    return json.dumps(rows(report), indent=2) + "\n"
