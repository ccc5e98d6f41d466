"""Which parts the page of a report has, and how they fit its size: the result first, pictures, findings, notes, the data."""

from __future__ import annotations

from perfaudit.render.html.data import data_element, json_element
from perfaudit.render.html.findings import Code, findings_section, more_findings
from perfaudit.render.html.frame import frame_bytes, whole_page
from perfaudit.render.html.gate import findings_layer, gate_body, gate_header
from perfaudit.render.html.markup import Markup, bullets, element, section, shorten, together, words
from perfaudit.render.html.run import below_findings, run_body, run_header, run_notes
from perfaudit.render.html.scan import scan_body, scan_header
from perfaudit.render.html.trace import after_findings, before_findings, trace_header
from perfaudit.render.html.tune import measured_body, tune_body, tune_header
from perfaudit.render.run import is_never_built
from perfaudit.render.words import distrust, place_of, printable, remarks, unused_text
from perfaudit.report import Json, Report
from perfaudit.verdicts import Gate

LIMIT = 1_000_000  # bytes of a page: what mail and chat still take
MOST_LISTED = 100  # files that were not read, notes


def report_page(report: Report, code: Code, instead: Json | None = None) -> str:
    """The page, `LIMIT` bytes at most. code: lines around places of findings. instead: the data, where they are others."""
    shown = printable(report)
    header, body = _parts(shown, report, code)
    room = LIMIT - len(header.encode()) - len(body.encode()) - frame_bytes()
    data, left = data_element(report, room) if instead is None else (json_element(instead), ())
    if len(data.encode()) > room:
        data, left = json_element({"left_out": ["everything"]}), ("everything",)
    said = f" Left out for its size: {', '.join(left)}; `--format json` has all of it." if left else ""
    note = element("p", words(f"This page holds its report as JSON, in its element `report`.{said}"), class_="dim")
    return whole_page(_title(shown), header, body, note, data)


def _parts(shown: Report, exact: Report, code: Code) -> tuple[Markup, Markup]:
    """The head and the body of a page. exact: the report before signs were put into it."""
    if shown.traces is not None:
        return _of_traces(shown, exact, code)
    if shown.run is not None:
        return _of_run(shown, exact, code)
    if shown.gate is not None:
        return _of_gate(shown, shown.gate, exact, code)
    if shown.ladder is not None or shown.command in ("tune", "history"):
        notes = section("Notes", "notes", bullets(map(words, _notes_of_tune(shown))))
        return tune_header(shown), together(tune_body(shown, exact), notes, _not_read(shown))
    return _of_scan(shown, exact, code)


def _of_gate(shown: Report, gate: Gate, exact: Report, code: Code) -> tuple[Markup, Markup]:
    layer = findings_layer(gate)
    found = findings_section(shown, exact, code, "Findings", layer) or section("Findings", "findings", layer)
    notes = section("Notes", "notes", bullets(map(words, remarks(shown)[:MOST_LISTED])))
    return gate_header(shown, gate), together(gate_body(gate), found, notes, _not_read(shown))


def _notes_of_tune(report: Report) -> list[str]:
    """Notes that the beginning of the page does not say."""
    known = {distrust(report), report.ladder.not_learning if report.ladder is not None else ""}
    return [note for note in remarks(report) if note not in known]


def _of_run(shown: Report, exact: Report, code: Code) -> tuple[Markup, Markup]:
    run = shown.run
    assert run is not None
    built = [number for number, finding in enumerate(shown.findings) if not is_never_built(finding)]
    of_shown, of_exact = (each.with_(findings=tuple(each.findings[n] for n in built)) for each in (shown, exact))
    found = findings_section(of_shown, of_exact, code, "What is wrong in the files that it ran")
    below = below_findings(shown) if found else ""
    notes = section("What else was seen", "seen", bullets(map(words, run_notes(shown, run))))
    return run_header(shown, run), together(run_body(run), found, below, notes, _not_read(shown))


def _of_traces(shown: Report, exact: Report, code: Code) -> tuple[Markup, Markup]:
    traces = shown.traces
    assert traces is not None
    found = findings_section(shown, exact, code, "What could be saved")
    nothing = section("What could be saved", "findings", element("p", "Nothing worth doing was found."))
    below = more_findings(shown) if shown.findings else ""
    body = together(before_findings(traces), found or nothing, below, after_findings(shown, traces), _not_read(shown))
    return trace_header(shown, traces), body


def _of_scan(shown: Report, exact: Report, code: Code) -> tuple[Markup, Markup]:
    found = findings_section(shown, exact, code)
    measured = measured_body(shown, exact) if shown.environment is not None else ""
    return scan_header(shown), together(scan_body(shown), found, measured, _not_read(shown), _notes(shown))


def _title(report: Report) -> str:
    """What the window of the browser is called."""
    of = report.target or (report.run.script if report.run is not None else "")
    if report.traces is not None:
        of = report.traces.verdict.partition(";")[0]
    return f"perfaudit {report.command}" + (f": {shorten(of, 80)}" if of else "")


def _not_read(report: Report) -> Markup:
    """What could not be read, with its reason."""
    shown = report.skipped[:MOST_LISTED]
    items = [together(element("code", shorten(one.path)), ": ", words(one.reason)) for one in shown]
    if len(shown) < len(report.skipped):
        items.append(Markup(f"and {len(report.skipped) - len(shown)} more"))
    return section("What was not read", "not-read", bullets(items))


def _notes(report: Report) -> Markup:
    """What is said of the whole report, and comments that silence nothing."""
    items = [words(remark) for remark in remarks(report)[:MOST_LISTED] if remark != distrust(report)]
    items += [
        together(element("code", shorten(str(place_of(item)))), ": ", words(unused_text(item)))
        for item in report.unused_suppressions[:MOST_LISTED]
    ]
    return section("Notes", "notes", bullets(items))
