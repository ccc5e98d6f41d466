"""JUnit's XML, for everything that shows test results: each finding is a test that failed.

Written to the strictest schema in use, that of Jenkins' xUnit plugin (no `file` or `line` attributes); `classname`, which
GitLab and Jenkins group by, is the path.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

from perfaudit.findings import Finding
from perfaudit.render.words import count, one_line, place_of, printable, remarks, sentences, unused
from perfaudit.report import Report


def render(report: Report) -> str:
    """The document, in ASCII with references, so that no stream changes its encoding.

    A test that passes stands for the scan itself: viewers call a report without any test broken. Tests are named without
    lines, so that a finding stays the same test when the code above it grows; a number tells equal ones apart.
    """
    report = printable(report)
    findings, skipped = len(report.findings), len(report.skipped)
    counts = {"tests": str(1 + findings + skipped), "failures": str(findings), "errors": "0"}
    root = ET.Element("testsuites", {"name": "perfaudit", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "perfaudit", **counts, "skipped": str(skipped), "time": "0"})
    scan = _case(suite, "perfaudit", report.command)
    lines = [f"{count(findings, 'finding')} in {count(report.files, 'file')}, {skipped} not audited", *remarks(report)]
    lines += [f"{place_of(item)}: {unused(item)}" for item in report.unused_suppressions]
    ET.SubElement(scan, "system-out").text = "\n".join(lines)
    seen: Counter[tuple[str, str]] = Counter()
    for finding in report.findings:
        path = one_line(finding.location.path) if finding.location is not None else "(no source line)"
        seen[path, finding.rule] += 1
        number = f" #{seen[path, finding.rule]}" if seen[path, finding.rule] > 1 else ""
        _failure(_case(suite, path, f"{finding.rule} {finding.name}{number}"), finding)
    for item in report.skipped:
        ET.SubElement(_case(suite, one_line(item.path), "not audited"), "skipped", message=item.reason)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii") + "\n"


def _case(suite: ET.Element, path: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=path, name=name, time="0")


def _failure(case: ET.Element, finding: Finding) -> None:
    failure = ET.SubElement(case, "failure", type=finding.severity, message=finding.message)
    place = f"{finding.location}" if finding.location is not None else "(no source line)"
    diff = finding.fix.diff if finding.fix is not None else ""
    failure.text = "\n".join(
        [f"{place}: {finding.rule} {finding.name}", *sentences(finding), *([diff] if diff else [])]
    )
