"""What a gate judged, as parts of a page: the verdict, times with what is tolerated, counters before and after, new findings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfaudit.render.counter_words import (
    amount,
    counter_name,
    difference,
    exact,
    in_order,
    is_blamed,
    names_text,
    place_text,
    standing,
)
from perfaudit.render.gate import machine, what_next
from perfaudit.render.gate_words import findings_counts, findings_phrase, headline, word
from perfaudit.render.html.charts import Band, BarRow, IntervalRow, axis_from_zero, axis_over, bars, intervals
from perfaudit.render.html.markup import (
    Markup,
    Part,
    element,
    fold_away,
    paragraphs,
    section,
    sentence,
    table,
    together,
    words,
)
from perfaudit.render.run import milliseconds
from perfaudit.render.time_words import percent, self_test_sentences, time_sentences
from perfaudit.render.words import seconds
from perfaudit.report import Report
from perfaudit.verdicts import CounterChange, CountersVerdict, Gate, GateVerdict, TimeVerdict

MOST_RATIO, LEAST_RATIO = 2.0, 0.25  # of a picture; what lies outside is an arrow at its edge
MOST_GROWTH = 3.0  # of a counter, in a picture
_KINDS: dict[GateVerdict, str] = {"regressed": "slower", "improved": "faster", "pass": "faster"}
_BADGES: dict[GateVerdict, str] = {
    "regressed": "error",
    "failed": "error",
    "inconclusive": "warning",
    "not_judged": "warning",
}


def gate_header(report: Report, gate: Gate) -> Markup:
    """The verdict in one sentence, on what it was measured, and what can be typed next."""
    verdict = "self-test" if gate.kind == "self_test" else word(gate.verdict)
    return element(
        "header",
        element("h1", "perfaudit gate ", _badge(gate.verdict, verdict)),
        element("p", words(sentence(headline(gate).removeprefix("gate: "))), class_="verdict"),
        paragraphs([sentence(machine(report))], class_="dim"),
        paragraphs(map(sentence, what_next(report))),
    )


def gate_body(gate: Gate) -> Markup:
    """The layers that were measured, each with its pictures."""
    tests = (
        together(element("h3", element("code", target)), paragraphs(map(sentence, self_test_sentences(test))))
        for target, test in gate.self_tests.items()
    )
    return together(
        section("Self-test", "self-test", tests),
        section("Time of a step", "time", _times(gate)),
        section("Counters of a step", "counters", (_counters(counted, gate) for counted in gate.counters)),
    )


def findings_layer(gate: Gate) -> Markup:
    """What the gate says of its findings, above the new ones."""
    found = gate.findings
    if found is None:
        return Markup()
    said = findings_counts(found) or findings_phrase(found)
    basis = "Read from the source, nothing was run."
    return together(
        element("p", _badge(found.verdict), f" {sentence(said)}. {basis}"), paragraphs([sentence(found.reason)])
    )


def _badge(verdict: GateVerdict, said: str = "") -> Markup:
    return element("span", said or word(verdict), class_=f"badge {_BADGES.get(verdict, '')}".rstrip())


def _times(gate: Gate) -> Markup:
    if not gate.times:
        return Markup()
    told = (
        together(
            element(
                "h3", element("code", timed.target), " ", _badge(timed.verdict, "advice only" if timed.advice else "")
            ),
            paragraphs(map(sentence, time_sentences(timed, gate))),
            _before_after(timed),
        )
        for timed in gate.times
    )
    return together(_ratios(gate), told)


def _ratios(gate: Gate) -> Markup:
    """The ratios of all targets with their intervals, and how much slower a step may be."""
    rows, limits, tolerated = [], set(), set()
    for timed in gate.times:
        if timed.ratio is None or timed.advice or not math.isfinite(timed.high):
            continue
        figures = f"{timed.ratio:.3f} [{timed.low:.3f}, {timed.high:.3f}] {word(timed.verdict)}"
        kind = _KINDS.get(timed.verdict, "undecided")
        rows.append(IntervalRow(element("code", timed.target), figures, kind, timed.ratio, timed.low, timed.high))
        if timed.control is not None:
            low, high = timed.control
            said = together("identical code beside ", element("code", timed.target))
            rows.append(IntervalRow(said, f"[{low:.3f}, {high:.3f}]", "control", (low + high) / 2, low, high))
        limits.add(timed.limit)
        tolerated.add(timed.tolerated)
    if not rows:
        return Markup()
    limit = max(limits)
    ends = [min(max(end or 1.0, LEAST_RATIO), MOST_RATIO) for row in rows for end in (row.low, row.high)]
    axis = axis_over([1.0, 1 + limit, *ends], lambda ratio: f"{ratio:.4g}")
    drawn = intervals(rows, axis, "Time of a step over that of the reference", 1.0, [Band(1.0, 1 + limit, "tolerated")])
    caption = (
        f"Time of a step over that of the reference; above 1 it is slower. A step passes if its interval ends in or left of "
        f"the band, which reaches to {percent(limit)} slower. A slowdown of {percent(max(tolerated))} never fails."
    )
    return element("figure", element("figcaption", caption), drawn)


def _before_after(timed: TimeVerdict) -> Markup:
    before, after = timed.seconds_before, timed.seconds_after
    if before is None or after is None:
        return Markup()
    kind = (
        "rest"
        if timed.advice
        else {"slower": "slower", "faster": "faster"}.get(_KINDS.get(timed.verdict, ""), "working")
    )
    name = "stored" if timed.advice else "reference"
    rows = [BarRow(name, seconds(before), 0.0, before, "rest"), BarRow("this code", seconds(after), 0.0, after, kind)]
    return bars(rows, axis_from_zero(max(before, after), milliseconds), f"Seconds of a step of {timed.target}")


def _counters(counted: CountersVerdict, gate: Gate) -> Markup:
    """The counters of one target: what changed as a picture and a table, and the rest folded."""
    parts: list[Part] = [element("h3", element("code", counted.target), " ", _badge(counted.verdict))]
    parts.append(paragraphs([sentence(counted.reason)]))
    changes = in_order(counted.changes)
    parts += [_growth(changes), _changes(changes, gate)]
    aside = [f"Set aside: {counter_name(name)}: {why}" for name, why in counted.set_aside.items()]
    parts.append(paragraphs(aside, class_="dim"))
    changed = {change.counter for change in changes}
    same = [[counter_name(name), exact(name, value)] for name, value in counted.counters.items() if name not in changed]
    if same:
        shown = table(f"Counters of a step of {counted.target} that are the same", ("counter", "value"), same)
        parts.append(fold_away("Counters that are the same", shown))
    return together(parts)


def _growth(changes: Sequence[CounterChange]) -> Markup:
    """By how much each counter that there was before has grown or shrunk, as bars from what it was."""
    rows, is_cut = [], False
    for change in changes:
        if change.before <= 0 or change.before == change.after:
            continue
        ratio = change.after / change.before
        kind = "slower" if is_blamed(change) else "faster" if not change.grew else "undecided"
        is_cut |= ratio > MOST_GROWTH
        shown = min(ratio, MOST_GROWTH)
        rows.append(BarRow(counter_name(change.counter), f"{100 * (ratio - 1):+.1f} %", 1.0, shown, kind))
    if not rows:
        return Markup()
    cut = f" A bar is cut off at {MOST_GROWTH:.0f} ×." if is_cut else ""
    axis = axis_over([0.0, 1.0, *(row.end for row in rows)], lambda ratio: f"{ratio:.4g} ×", 0.02)
    return element(
        "figure",
        element("figcaption", f"Counters over what they were.{cut}"),
        bars(rows, axis, "Counters over what they were", 1.0),
    )


def _changes(changes: Sequence[CounterChange], gate: Gate) -> Markup:
    if not changes:
        return Markup()
    before = "stored" if gate.kind == "baseline" else "before"
    rows = [
        [counter_name(c.counter), _value(c, c.before), _value(c, c.after), difference(c), _where(c)] for c in changes
    ]
    columns = ("counter", before, "now", "difference", "where")
    return table("Counters of a step that changed", columns, rows, "counters")


def _value(change: CounterChange, value: int) -> str:
    size = amount(change.counter, value)
    return f"{value:,}" + (f" ({size})" if size else "")


def _where(change: CounterChange) -> Markup:
    places = [element("code", place_text(place)) for place in change.places]
    said = [text for text in (names_text(change), standing(change)) if text]
    lines = (element("span", part, class_="entry") for part in (*places, *said))
    return element("td", lines, class_="words")
