"""A gate as Markdown: the verdict, a table for counters and one for times, and all of it in words, folded away."""

from __future__ import annotations

from collections.abc import Callable

from perfaudit.render.counter_words import counter_name, difference, in_order, names_text, place_text, standing
from perfaudit.render.gate import layers, machine
from perfaudit.render.gate_words import findings_counts, findings_phrase, headline, word
from perfaudit.render.paint import plain
from perfaudit.render.time_words import (
    MEDIANS,
    could_not_see,
    has_other_medians,
    interval_words,
    same_again,
    why_this_way,
)
from perfaudit.render.words import count, seconds
from perfaudit.report import Report
from perfaudit.verdicts import CounterChange, CountersVerdict, Gate, TimeVerdict

Text = Callable[[str], str]

_COUNTERS = (
    "| target | verdict | counter of one step | {before} | {after} | difference | where |\n"
    "|---|---|---|--:|--:|---|---|\n"
)
_TIMES = "| target | verdict | a step takes | ratio | interval | pairs | comparisons | why |\n|---|---|---|--:|--:|--:|--:|---|\n"


def opening(gate: Gate, text: Text) -> str:
    """The verdict as a heading, what decided it as a sentence."""
    verdict = "self-test" if gate.kind == "self_test" else word(gate.verdict)
    return f"## perfaudit gate: {verdict}\n\n{text(_capital(headline(gate).removeprefix('gate: ')))}\n"


def findings_heading(gate: Gate, text: Text) -> str:
    """The numbers of layer 1, above the table of the new ones; "" where it was not asked for."""
    found = gate.findings
    if found is None:
        return ""
    said = "; ".join(filter(None, [findings_counts(found) or findings_phrase(found), found.reason]))
    return f"\n### Findings: {word(found.verdict)}\n\n{text(said)}\n"


def rows(gate: Gate, text: Text) -> list[str]:
    """The tables of counters and times, and the self-tests, a part for each line that may be left out."""
    parts = []
    if gate.counters:
        before = f"stored in {gate.against}" if gate.kind == "baseline" else "before"
        after = "counted now" if gate.kind == "baseline" else "after"
        parts.append("\n### Counters\n\n" + _COUNTERS.format(before=_cell(text(before)), after=after))
        parts += [row for counted in gate.counters for row in _counters(counted, text)]
    if gate.times and gate.kind != "self_test":  # whose last one stands for nothing
        parts.append("\n### Time\n\n" + _TIMES)
        parts += [_time(timed, text) for timed in gate.times]
    return parts


def everything(report: Report) -> str:
    """The blocks of the text format: on what machine, what was set aside, what each number rests on; "" for findings alone."""
    assert report.gate is not None
    on = machine(report)
    return "\n".join([*([f"{on}\n"] if on else []), *layers(report.gate, plain, 100)])


def _counters(counted: CountersVerdict, text: Text) -> list[str]:
    target, verdict = text(counted.target), word(counted.verdict)
    lines = [_line([target, verdict, *_change(change), text(_where(change))]) for change in in_order(counted.changes)]
    if lines:
        return lines
    same = len(counted.counters.keys() - counted.set_aside.keys())
    said = counted.reason or (f"{count(same, 'counter')} the same" if counted.verdict == "pass" else "")
    return [_line([target, verdict, text(said), "", "", "", ""])]


def _change(change: CounterChange) -> list[str]:
    return [counter_name(change.counter), f"{change.before:,}", f"{change.after:,}", difference(change)]


def _where(change: CounterChange) -> str:
    said = [f"`{place_text(place)}`" for place in change.places]
    return "; ".join([*said, *filter(None, [names_text(change), standing(change)])])


def _time(timed: TimeVerdict, text: Text) -> str:
    verdict = "advice only" if timed.advice else word(timed.verdict)
    ratio = f"{timed.ratio:.3f}" if timed.ratio is not None else ""
    interval = ""
    if timed.ratio is not None and timed.high != float("inf"):
        interval = f"{timed.low:.3f} to {timed.high:.3f} ({interval_words(timed)})"
    why = [could_not_see(timed)] if timed.verdict == "inconclusive" else []
    why += [timed.reason] if timed.reason else []
    why += [f"accepted: {timed.accepted}"] if timed.accepted else []
    why += [f"in one training{same_again(timed)}"] if timed.way == "one training" else []
    why += [why_this_way(timed)] if timed.why_so else []
    counts = [str(timed.pairs or ""), str(timed.quads or "")]
    return _line([text(timed.target), verdict, _step(timed, text), ratio, interval, *counts, text("; ".join(why))])


def _step(timed: TimeVerdict, text: Text) -> str:
    if timed.seconds_before is None or timed.seconds_after is None:
        return ""
    before, after = seconds(timed.seconds_before), seconds(timed.seconds_after)
    of_all = f"; {MEDIANS}" if has_other_medians(timed) else ""
    return text(
        f"{before} stored, {after} measured now" if timed.advice else f"{before} → {after}, both measured{of_all}"
    )


def _line(cells: list[str]) -> str:
    return "".join(f"| {_cell(cell)} " for cell in cells) + "|\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
