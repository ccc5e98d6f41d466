"""One HTML file that can be passed on: the result first, findings, pictures, and the report as data; no script, no network.

Drawn as SVG and tables by Python. Minified, Vega 6.4.0 with Vega-Lite 6.4.3 has 772 kB, Plotly's basic bundle 4.1.1 1,192 kB,
uPlot 1.6.32 51 kB, but it draws on a canvas, which screen readers do not read. All need JavaScript, without which this page must
be whole.
"""

from __future__ import annotations

import base64
import hashlib

from perfaudit.findings import Finding
from perfaudit.render.html.data import data_element
from perfaudit.render.html.markup import Markup, Part, element, shortened, together, words
from perfaudit.render.html.style import style
from perfaudit.render.html.trace import after_findings, before_findings, titled
from perfaudit.render.words import count, fix_title, printable, saving_text
from perfaudit.report import Report
from perfaudit.rules import Rule, rule_heads

LIMIT = 1_000_000  # bytes of a page: what mail and chat still take
MOST_FINDINGS = 100
MOST_PATCH = 6000  # characters of a patch


def report_page(report: Report) -> str:
    """The page, `LIMIT` bytes at most."""
    shown = printable(report)
    traces = shown.traces
    body = together(
        before_findings(shown, traces) if traces is not None else _opening(shown),
        _findings(shown),
        after_findings(shown, traces) if traces is not None else Markup(),
        _not_read(shown),
    )
    room = LIMIT - len(body.encode()) - len(style().encode()) - 4000
    data, left = data_element(report, room)
    said = f" Left out for its size: {', '.join(left)}; `--format json` has all of it." if left else ""
    note = element("p", words(f"This page holds its report as JSON, in its element `report`.{said}"), class_="dim")
    return _page(titled(shown), together(body, element("footer", note)), data)


def _page(title: str, body: Markup, data: Markup) -> str:
    sheet = style()
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Markup(sheet)),
    )
    has_findings = ' id="findings"' in body
    skip = element("a", "Skip to the findings", href="#findings", class_="skip") if has_findings else Markup()
    whole = element("html", head, element("body", skip, element("main", body), data), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def _opening(report: Report) -> Markup:
    nothing = "Nothing could be read." if report.command == "trace" else "Nothing was found."
    verdict = count(len(report.findings), "finding") if report.findings else nothing
    return element("header", element("h1", f"perfaudit {report.command}"), element("p", verdict, class_="verdict"))


def _findings(report: Report) -> Markup:
    shown = report.findings[:MOST_FINDINGS]
    if not shown and report.traces is None:
        return Markup()
    parts: list[Part] = [element("h2", "What could be saved", id="findings")]
    if not shown:
        parts.append(element("p", "Nothing worth doing was found."))
    rules = rule_heads()
    parts.append(
        element("ol", (_finding(one, rules.get(one.rule)) for one in shown), class_="findings") if shown else ""
    )
    if len(shown) < len(report.findings):
        left = len(report.findings) - len(shown)
        parts.append(element("p", words(f"{left} more are not shown; `--format json` has them."), class_="dim"))
    if report.traces is not None and shown:
        more = report.traces.more_findings
        smaller = f" {count(more, 'smaller finding')} not shown." if more else ""
        overlap = "Savings are upper bounds, and findings overlap in time: they do not add up."
        parts.append(element("p", overlap, smaller, class_="dim"))
    return element("section", parts, aria_labelledby="findings")


def _finding(finding: Finding, rule: Rule | None) -> Markup:
    place = f" {finding.location.path}:{finding.location.line}" if finding.location is not None else ""
    head = element(
        "h3",
        element("span", _saving(finding), class_="saving"),
        f"{finding.rule} {finding.name}",
        element("span", shortened(place), class_="place"),
    )
    parts = [head, element("p", words(_sentence(finding.message)))]
    if finding.note:
        parts.append(element("p", "Where: " if finding.note.startswith("mostly") else "", words(finding.note)))
    if finding.fix is not None:
        parts.append(element("p", words(_sentence(fix_title(finding.fix)))))
    if rule is not None:
        parts.append(element("p", words(" ".join(rule.why.split()))))
    parts.append(element("p", "What to do: ", element("code", f"perfaudit explain {finding.rule}"), _sources(rule)))
    if finding.fix is not None and finding.fix.diff:
        parts.append(_patch(finding.fix.diff))
    return element("li", parts)


def _saving(finding: Finding) -> str:
    if finding.saving is None:
        return ""
    if finding.saving.basis == "profiled":
        return f"at most {100 * finding.saving.high:.0f} % "
    return f"{saving_text(finding.saving)} "


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sources(rule: Rule | None) -> Markup:
    """Links to what the rule rests on; only such as a browser opens as a page."""
    links = [link for link in (rule.sources if rule is not None else ()) if link.startswith(("https://", "http://"))]
    named = (together("; " if number else ". Source: ", _link(link)) for number, link in enumerate(links))
    return together(named)


def _link(link: str) -> Markup:
    said = link.partition("://")[2]
    return element("a", shortened(said, 70), href=link, rel="noopener noreferrer")


def _patch(diff: str) -> Markup:
    cut = len(diff) > MOST_PATCH
    lines = diff[:MOST_PATCH].split("\n")
    shown = together(*(together(line, Markup("\n")) for line in lines))
    more = element("p", words("Cut here; `--format json` has all of it."), class_="dim") if cut else ""
    return element("details", element("summary", "The patch"), element("pre", shown, tabindex="0"), more)


def _not_read(report: Report) -> Markup:
    """What could not be read, with its reason."""
    if not report.skipped:
        return Markup()
    shown = report.skipped[:MOST_FINDINGS]
    items = [element("li", element("code", shortened(one.path)), ": ", words(one.reason)) for one in shown]
    if len(shown) < len(report.skipped):
        items.append(element("li", f"and {len(report.skipped) - len(shown)} more"))
    heading = element("h2", "What was not read", id="not-read")
    return element("section", heading, element("ul", items, class_="plain"), aria_labelledby="not-read")
