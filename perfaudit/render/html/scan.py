"""What a scan found, as the beginning of a page: how much, of which rules, and what is known of what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from perfaudit.findings import SEVERITIES, Basis, Finding
from perfaudit.render.html.charts import BarRow, axis_over, bars
from perfaudit.render.html.markup import Markup, Part, element, paragraphs, section, sentence, table, together
from perfaudit.render.html.tune import on_what
from perfaudit.render.text import what_next
from perfaudit.render.words import count
from perfaudit.report import Report

MOST_ROWS = 12  # of a picture
_AT_MOST = ("profiled", "documented")  # bases that know an upper bound
_BASES: dict[Basis, str] = {
    "measured": "Measured on your training: the patched source against your code, in fresh processes",
    "screened": "Screened in your training while it ran: put in place in turn with your code, before losses were compared",
    "profiled": "From the profile of your training: an upper bound",
    "benchmarked": "Measured by perfaudit on a small training of its own, not on yours",
    "documented": "Documented by others for a program of theirs: an upper bound",
}


def scan_header(report: Report) -> Markup:
    """The result: how many findings of which severity, on what machine they were measured, and what can be typed next."""
    machine = on_what(report) if report.environment is not None else ""
    next_ = paragraphs(map(sentence, what_next(report))) if report.findings else ""
    return _header(report, scan_verdict(report), machine, next_)


def scan_verdict(report: Report) -> str:
    """How many findings of which severity, in how many files."""
    skipped = f", {len(report.skipped)} not audited" if report.skipped else ""
    files = f"in {count(report.files, 'file')}{skipped}"
    if not report.findings:
        verdict = "Nothing new" if report.known else "Nothing was found" if report.files else "Nothing could be read"
        return f"{verdict} {files}" if report.files else verdict
    numbers = Counter(finding.severity for finding in report.findings)
    parts = [count(numbers[s], s, s if s == "info" else f"{s}s") for s in SEVERITIES if numbers[s]]
    return f"{count(len(report.findings), 'finding')} {files}: {', '.join(parts)}"


def _header(report: Report, verdict: str, *more: Part) -> Markup:
    return element(
        "header", element("h1", f"perfaudit {report.command}"), element("p", verdict, class_="verdict"), *more
    )


def scan_body(report: Report) -> Markup:
    """What is known of the savings, as pictures, and the rules with their number of findings."""
    savings = [_savings(report.findings, basis) for basis in _BASES]
    return together(section("What it may save", "savings", savings), _by_rule(report))


def _savings(findings: Sequence[Finding], basis: Basis) -> Markup:
    """The ranges of one basis; findings of one rule that say the same share a row. No two bases share a picture."""
    grouped: dict[tuple[str, float, float], list[Finding]] = {}
    for finding in findings:
        if finding.saving is not None and finding.saving.basis == basis:
            low, high = finding.saving.low, finding.saving.high
            grouped.setdefault((f"{finding.rule} {finding.name}", low, high), []).append(finding)
    rows = [_row(name, found, low, high, basis) for (name, low, high), found in list(grouped.items())[:MOST_ROWS]]
    if not rows:
        return Markup()
    axis = axis_over(
        [0.0, *(end for row in rows for end in (row.start, row.end))], lambda share: f"{100 * share:.0f} %"
    )
    left = len(grouped) - len(rows)
    more = element("p", f"and {left} more, which the findings below have", class_="dim") if left else ""
    drawn = bars(rows, axis, f"Savings in percent of a step, {basis}", base=0.0)
    return element("figure", element("figcaption", f"{_BASES[basis]}. Percent of a step that is saved."), drawn, more)


def _row(name: str, found: Sequence[Finding], low: float, high: float, basis: Basis) -> BarRow:
    figures = f"up to {100 * high:.0f} %" if basis in _AT_MOST else f"{100 * low:.1f} to {100 * high:.1f} %"
    at = found[0].location
    where = f"\u00a0× {len(found)}" if len(found) > 1 else f" {at.path}:{at.line}" if at is not None else ""
    return BarRow((name, element("span", where, class_="dim")), figures, low, high, basis)


def _by_rule(report: Report) -> Markup:
    """A table of the rules with their findings, each with a link to its first."""
    first: dict[str, tuple[int, Finding]] = {}
    for number, finding in enumerate(report.findings, start=1):
        first.setdefault(finding.rule, (number, finding))
    if len(first) < 2:
        return Markup()
    numbers = Counter(finding.rule for finding in report.findings)
    rows = [_rule_row(number, finding, numbers[rule], report.findings) for rule, (number, finding) in first.items()]
    columns = ("rule", "findings", "severity", "patch")
    return section("By rule", "rules", table("Rules and their findings", columns, rows, "names rules"))


def _rule_row(number: int, finding: Finding, findings: int, all_: Iterable[Finding]) -> list[Part]:
    link = element("a", f"{finding.rule} {finding.name}", href=f"#finding-{number}")
    fixes = Counter(one.fix.safety for one in all_ if one.rule == finding.rule and one.fix is not None)
    said = ", ".join(f"{many} {safety}" for safety, many in fixes.items()) or "none"
    return [link, str(findings), element("span", finding.severity, class_=f"badge {finding.severity}"), said]
