"""A report as a notebook shows it: the verdict and one or two small tables; `--format html` has the pictures and patches.

No style of its own, so that it looks as the notebook does, in its theme.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.findings import Saving
from perfaudit.measurements import Ladder, settings_text
from perfaudit.render.counter_words import counter_name, difference, in_order
from perfaudit.render.gate_words import headline as headline_of_gate
from perfaudit.render.gate_words import word
from perfaudit.render.html.findings import place_text
from perfaudit.render.html.markup import Markup, Part, element, sentence, shorten, table, together, words
from perfaudit.render.html.scan import scan_verdict
from perfaudit.render.html.tune import search_result
from perfaudit.render.ladder import alone_text
from perfaudit.render.ladder import headline as headline_of_climb
from perfaudit.render.machine import value_of, verdict
from perfaudit.render.run import headline as headline_of_run
from perfaudit.render.run import milliseconds, no_step, seconds_of_phases
from perfaudit.render.words import count, interval_text, one_line, printable, saving_text
from perfaudit.report import Report
from perfaudit.runs import PHASE_WORDS, Run
from perfaudit.verdicts import Gate

MOST_ROWS = 10
MOST_CHARACTERS = 300  # of a cell
BAR = 120  # pixels of a share of 1
COLOUR = "#2b8fd0"  # has a contrast of 3 with white and with black


def fragment(report: Report) -> str:
    """The report in a few lines of HTML, all of whose texts are escaped."""
    shown = printable(report)
    head = together(element("b", f"perfaudit {shown.command}"), ": ", words(_verdict(shown)))
    return element("div", element("p", head), *_tables(shown))


def verdict_of(report: Report) -> str:
    """The result in one line."""
    return one_line(_verdict(printable(report)))


def _verdict(report: Report) -> str:
    if report.traces is not None:
        return report.traces.verdict
    if report.gate is not None:
        return sentence(headline_of_gate(report.gate).removeprefix("gate: "))
    if report.ladder is not None:
        return headline_of_climb(report).replace(" -> ", " → ")
    if report.run is not None:
        return headline_of_run(report.run) if report.run.counted else no_step(report.run)[0]
    if report.command == "doctor":
        return verdict(report.machine)
    return search_result(report) if report.command == "tune" else scan_verdict(report)


def _tables(report: Report) -> Iterator[Markup]:
    if report.run is not None and report.run.counted:
        yield _phases(report.run)
    if report.gate is not None:
        yield from _gate(report.gate)
    if report.ladder is not None:
        yield _rungs(report.ladder)
    elif report.winners:
        yield _winners(report)
    if report.machine:
        yield _machine(report)
    if report.findings:
        yield _findings(report)


def _findings(report: Report) -> Markup:
    rows: list[list[Part]] = [
        [
            element("code", shorten(place_text(finding) or "no source line", 120)),
            f"{finding.rule} {finding.name}",
            finding.severity,
            _cost(finding.saving) if finding.saving is not None else "",
            words(finding.message, MOST_CHARACTERS),
        ]
        for finding in report.findings[:MOST_ROWS]
    ]
    left = len(report.findings) - len(rows)
    more = element("p", f"{count(left, 'more finding')} in ", element("code", "report.findings")) if left > 0 else ""
    return together(table("Findings", ("place", "rule", "severity", "cost", "what is there"), rows), more)


def _cost(saving: Saving) -> str:
    """What is known of it in a few words; the page and the text say on what training."""
    low, high = 100 * saving.low, 100 * saving.high
    return (
        f"{saving.basis}: up to {high:.0f} %"
        if saving.basis in ("documented", "profiled")
        else f"{saving.basis}: {low:.0f} to {high:.0f} %"
    )


def _phases(run: Run) -> Markup:
    step = seconds_of_phases(run)
    rows: list[list[Part]] = [
        [PHASE_WORDS[name], f"{100 * share:.1f} %", milliseconds(share * step), _bar(share)]
        for name, share in run.phases.items()
        if share >= 0.0005
    ]
    return table("Phases of a step", ("phase", "share", "time", ""), rows)


def _bar(share: float) -> Markup:
    """A bar without words: its share stands beside it."""
    drawn = element("rect", width=round(BAR * min(max(share, 0.0), 1.0), 1), height=10, fill=COLOUR)
    return element("svg", drawn, width=BAR, height=10, aria_hidden="true")


def _rungs(found: Ladder) -> Markup:
    rows: list[list[Part]] = [
        [
            words(rung.words, MOST_CHARACTERS),
            alone_text(rung),
            interval_text(*rung.beside) if rung.beside is not None else "",
            "taken out" if rung.dropped else ", ".join(rung.changes) or "nothing",
        ]
        for rung in found.rungs
    ]
    return table("The ladder", ("patch", "alone", "beside the others", "also changes"), rows) if rows else Markup()


def _winners(report: Report) -> Markup:
    rows: list[list[Part]] = [
        [
            winner.knob,
            words(winner.words, MOST_CHARACTERS),
            settings_text(winner.settings),
            _saving_words(winner.saving),
        ]
        for winner in report.winners
    ]
    return table("What each knob recommends", ("knob", "recommended", "settings", "saves"), rows)


def _saving_words(saving: Saving | None) -> Markup:
    return words(saving_text(saving), MOST_CHARACTERS) if saving is not None else Markup()


def _gate(gate: Gate) -> Iterator[Markup]:
    times: list[list[Part]] = [
        [
            timed.target,
            word(timed.verdict),
            interval_text(timed.ratio, timed.low, timed.high) if timed.ratio is not None else "",
        ]
        for timed in gate.times
    ]
    if times:
        yield table("Time of a step over that of the reference", ("target", "verdict", "ratio"), times[:MOST_ROWS])
    changes: list[list[Part]] = [
        [counted.target, counter_name(change.counter), f"{change.before:,}", f"{change.after:,}", difference(change)]
        for counted in gate.counters
        for change in in_order(counted.changes)
    ]
    if changes:
        columns = ("target", "counter", "before", "now", "difference")
        yield table("Counters of a step that changed", columns, changes[:MOST_ROWS])


def _machine(report: Report) -> Markup:
    facts = sorted(report.machine, key=lambda fact: fact.state != "warning")[: 2 * MOST_ROWS]
    rows: list[list[Part]] = [
        [fact.name, value_of(fact), fact.state, words(fact.advice, MOST_CHARACTERS)] for fact in facts
    ]
    return table("This machine", ("", "value", "state", "what to do"), rows)
