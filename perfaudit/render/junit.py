"""JUnit's XML, for everything that shows test results: each finding is a test that failed.

Written to the strictest schema in use, that of Jenkins' xUnit plugin (no `file` or `line` attributes); `classname`, which
GitLab and Jenkins group by, is the path.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter

from perfaudit.findings import Finding
from perfaudit.render.complaints import counter_sentences, is_failing, judged_times
from perfaudit.render.gate_words import counters_phrase, findings_counts, findings_phrase, headline, time_phrase
from perfaudit.render.time_words import self_test_sentences, time_sentences
from perfaudit.render.words import count, one_line, place_of, printable, remarks, sentences, unused_text
from perfaudit.report import Report
from perfaudit.verdicts import Gate, GateVerdict

# What a log would take for a command (`words.inert`), here by references, which read back as what they stand for.
_LOG_COMMAND = re.compile(r"^[^\S\n]*:(?=:)|#(?=#(?:\[|vso\[|teamcity\[))", re.MULTILINE)


def _as_reference(found: re.Match[str]) -> str:
    return f"{found[0][:-1]}&#{ord(found[0][-1])};"


def render(report: Report) -> str:
    """The document, in ASCII with references, so that no stream changes its encoding.

    A test that passes stands for the scan itself: viewers call a report without any test broken. Tests are named without
    lines, so that a finding stays the same test when the code above it grows; a number tells equal ones apart.
    """
    report = printable(report)
    findings, skipped = len(report.findings), len(report.skipped)
    root = ET.Element("testsuites", {"name": "perfaudit"})
    suite = ET.SubElement(root, "testsuite", {"name": "perfaudit"})
    lines = [f"{count(findings, 'finding')} in {count(report.files, 'file')}, {skipped} not audited", *remarks(report)]
    lines += [f"{place_of(item)}: {unused_text(item)}" for item in report.unused_suppressions]
    if report.gate is not None:  # its layers are tests, and one beside them that passes would contradict them
        _gate(suite, report.gate)
    else:
        ET.SubElement(_case(suite, "perfaudit", report.command), "system-out").text = "\n".join(lines)
    seen: Counter[tuple[str, str]] = Counter()
    for finding in report.findings:
        path = one_line(finding.location.path) if finding.location is not None else "(no source line)"
        seen[path, finding.rule] += 1
        number = f" #{seen[path, finding.rule]}" if seen[path, finding.rule] > 1 else ""
        _failure(_case(suite, path, f"{finding.rule} {finding.name}{number}"), finding)
    for item in report.skipped:
        ET.SubElement(_case(suite, one_line(item.path), "not audited"), "skipped", message=item.reason)
    if report.gate is not None:
        said = [headline(report.gate), *remarks(report)]
        if report.interrupted or (
            report.gate.fails and suite.find(".//failure") is None and suite.find(".//error") is None
        ):
            kind = "interrupted" if report.interrupted else report.gate.verdict
            case = _case(suite, "perfaudit gate", "everything was judged")
            ET.SubElement(case, "error", type=kind, message=said[0]).text = "\n".join(said)
        ET.SubElement(suite, "system-out").text = "\n".join(said)
    found = {tag: len(list(suite.iter(tag))) for tag in ("testcase", "failure", "error", "skipped")}
    counts = {"tests": str(found["testcase"]), "failures": str(found["failure"]), "errors": str(found["error"])}
    root.attrib.update(counts)
    suite.attrib.update({**counts, "skipped": str(found["skipped"]), "time": "0"})
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return _LOG_COMMAND.sub(_as_reference, document.decode("ascii")) + "\n"


def _gate(suite: ET.Element, gate: Gate) -> None:
    """A test for each layer and target; one that was not judged, or could not tell and fails nothing, is skipped."""
    if gate.findings is not None:
        found = gate.findings
        said = [findings_phrase(found), *filter(None, [findings_counts(found), found.reason])]
        _add_verdict(suite, gate, "findings", found.verdict, said)
    for counted in gate.counters:
        said = [counters_phrase(counted), *counter_sentences(counted)]
        _add_verdict(suite, gate, f"counters {counted.target}", counted.verdict, said)
    for timed in judged_times(gate):
        said = [time_phrase(timed), *time_sentences(timed, gate)]
        _add_verdict(suite, gate, f"time {timed.target}", timed.verdict, said)
    for target, test in gate.self_tests.items():
        verdict: GateVerdict = "inconclusive" if test.false_alarms else "pass"  # which says of the code nothing
        _add_verdict(suite, gate, f"self-test {target}", verdict, self_test_sentences(test))


def _add_verdict(suite: ET.Element, gate: Gate, name: str, verdict: GateVerdict, said: list[str]) -> None:
    case, text = _case(suite, "perfaudit gate", name), "\n".join(said)
    if verdict in ("pass", "improved", "accepted"):
        ET.SubElement(case, "system-out").text = text
    elif verdict == "failed" or is_failing(gate, verdict):
        tag = "error" if verdict == "failed" else "failure"
        ET.SubElement(case, tag, type=verdict, message=said[0]).text = text
    else:
        ET.SubElement(case, "skipped", message=text)


def _case(suite: ET.Element, path: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=path, name=name, time="0")


def _failure(case: ET.Element, finding: Finding) -> None:
    failure = ET.SubElement(case, "failure", type=finding.severity, message=finding.message)
    place = f"{finding.location}" if finding.location is not None else "(no source line)"
    diff = finding.fix.diff if finding.fix is not None else ""
    failure.text = "\n".join(
        [f"{place}: {finding.rule} {finding.name}", *sentences(finding), *([diff] if diff else [])]
    )
