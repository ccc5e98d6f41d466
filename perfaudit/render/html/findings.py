"""Findings in a page: what each costs and on what that rests, the code around it, and its patch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfaudit import rank
from perfaudit.findings import Finding, Fix, Location, Saving
from perfaudit.render.html.code import Excerpt, copyable_diff, excerpt_table, patch
from perfaudit.render.html.markup import (
    Markup,
    Part,
    command,
    element,
    fold_away,
    section,
    sentence,
    shorten,
    together,
    words,
)
from perfaudit.render.words import count, fix_title, lines_of, saving_text
from perfaudit.report import Report
from perfaudit.rules import Rule, rule_heads

MOST_FINDINGS = 100
ROOM = 500_000  # bytes of all findings of a page together
Code = Mapping[Location, Excerpt]

_HEADINGS = {
    rank.PAYS: "Measured: these pay here, by the lower bound of what they save",
    rank.SCREENED: "Screened: these pay in a training that runs, by the lower bound of what they save",
    rank.NOT_MEASURED: "Not measured: nothing was shown of these here",
    rank.DOES_NOT_PAY: "Timed: no saving shown here",
}


def findings_section(report: Report, exact: Report, code: Code, heading: str = "Findings", above: Part = "") -> Markup:
    """All findings that there is room for, in the order of the report. exact: the report before signs were put into it."""
    if not report.findings:
        return Markup()
    items = list(_within_room(report, exact, code))
    left = len(report.findings) - len(items)
    more = element("p", words(f"{left} more are not shown; `--format json` has them."), class_="dim") if left else ""
    groups = [rank.group(finding) for finding in report.findings]
    if len(set(groups)) == 1 and groups[0] == rank.NOT_MEASURED:
        return section(heading, "findings", above, element("ol", items, class_="findings"), more)
    parts: list[Part] = []
    for group in dict.fromkeys(groups):
        own = [item for item, its in zip(items, groups, strict=False) if its == group]
        if own:
            parts += [element("h3", _HEADINGS[group], class_="group"), element("ol", own, class_="findings")]
    return section(heading, "findings", above, parts, more)


def _within_room(report: Report, exact: Report, code: Code) -> Iterator[Markup]:
    """Findings as items of a list, up to the first for which there is no room. What is known of a rule is said once."""
    rules, seen, taken = rule_heads(), set[str](), 0
    is_of_traces = report.traces is not None
    for number, (finding, as_read) in enumerate(
        zip(report.findings[:MOST_FINDINGS], exact.findings, strict=False), start=1
    ):
        rule = rules.get(finding.rule)
        is_first = finding.rule not in seen
        seen.add(finding.rule)
        reason = _reason(finding, rule, is_of_traces) if is_first else Markup()
        if not is_first and finding.saving is not None and not _is_of_users(finding.saving):
            finding = finding.with_(saving=None)
        excerpt = code.get(as_read.location) if as_read.location is not None else None
        item = finding_item(finding, f"finding-{number}", as_read.fix, excerpt, reason)
        taken += len(item.encode())
        if taken > ROOM:
            return
        yield item


def finding_item(finding: Finding, id_: str, exact: Fix | None, excerpt: Excerpt | None, reason: Markup) -> Markup:
    """One finding. exact: its fix before signs were put into it; reason: why its rule says that it costs time."""
    place = shorten(place_text(finding), 200)
    head = element(
        "h3",
        element("span", share_text(finding.saving), class_="saving")
        if finding.saving is not None and _is_of_users(finding.saving)
        else "",
        element("span", finding.severity, class_=f"badge {finding.severity}"),
        f" {finding.rule} {finding.name} ",
        element("span", place, class_="place"),
    )
    parts: list[Part] = [head, element("p", words(sentence(finding.message)))]
    if len(finding.places) > 1:
        parts.append(element("p", sentence(lines_of(finding.places)), class_="dim"))
    if finding.saving is not None and finding.saving.basis != "profiled":
        parts.append(element("p", words(sentence(saving_text(finding.saving))), class_=f"basis {finding.saving.basis}"))
    if finding.note:
        parts.append(element("p", words(sentence(finding.note))))
    fix = finding.fix
    if fix is not None:
        parts.append(element("p", words(sentence(fix_title(fix)))))
    has_patch = fix is not None and bool(fix.diff)
    if fix is not None and has_patch:
        parts.append(
            patch(
                fix.diff, place or "the file", copyable_diff(exact.diff, exact.encoding) if exact is not None else None
            )
        )
    elif excerpt is not None:
        parts.append(excerpt_table(excerpt, place))
    parts.append(reason)
    return element("li", parts, id=id_)


def place_text(finding: Finding) -> str:
    """Where it is: "train.py:12", of a notebook "train.ipynb:cell 3:2"; "" for nowhere."""
    at = finding.location
    if at is None:
        return ""
    return f"{at.path}:{at.line}" if at.cell is None else f"{at.path}:cell {at.cell}:{at.line}"


def _is_of_users(saving: Saving) -> bool:
    """Whether it is of the user's own training; what is known of others is said in a sentence, not in a heading."""
    return saving.basis in ("measured", "screened", "profiled")


def share_text(saving: Saving) -> str:
    """A saving of the user's own training in a few words: "saves 3.1 to 4.0 % "."""
    low, high = 100 * saving.low, 100 * saving.high
    if saving.basis == "profiled":
        return f"at most {high:.0f} % "
    if saving.low > 0:
        return f"saves {low:.1f} to {high:.1f} % "
    if saving.high < 0:
        return f"{-high:.1f} to {-low:.1f} % slower "
    return f"{low:+.1f} to {high:+.1f} % "


def _reason(finding: Finding, rule: Rule | None, is_open: bool) -> Markup:
    """Why it costs time, with what that rests on; said once for each rule of a page."""
    if rule is None:
        return Markup()
    why = element("p", words(" ".join(rule.why.split())))
    return fold_away(
        "Why this costs time", why, _sources(rule), command(f"perfaudit explain {finding.rule}"), is_open=is_open
    )


def _sources(rule: Rule) -> Markup:
    """Links to what the rule rests on; only such as a browser opens as a page."""
    links = [link for link in rule.sources if link.startswith(("https://", "http://"))]
    if not links:
        return Markup()
    named = (together("; " if number else "", _link(link)) for number, link in enumerate(links))
    return element("p", "Source: " if len(links) == 1 else "Sources: ", named)


def _link(link: str) -> Markup:
    return element("a", shorten(link.partition("://")[2], 70), href=link, rel="noopener noreferrer")


def more_findings(report: Report) -> Markup:
    """What a page of traces says below its findings."""
    assert report.traces is not None
    more = report.traces.more_findings
    smaller = f" {count(more, 'smaller finding')} not shown." if more else ""
    overlap = "Each saving is an upper bound. Findings overlap in time, so savings do not add up."
    return element("p", overlap, smaller, class_="dim")
