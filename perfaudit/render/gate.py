"""A gate as a person reads it: the verdict, what each layer rests on, and what can be done next."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

from perfaudit.render.counter_words import (
    amount,
    counter_name,
    difference,
    in_order,
    is_blamed,
    names_text,
    place_text,
    standing,
)
from perfaudit.render.gate_words import findings_counts, headline, word
from perfaudit.render.paint import Paint, wrap
from perfaudit.render.tables import size
from perfaudit.render.time_words import self_test_sentences, time_sentences
from perfaudit.render.words import count
from perfaudit.report import Report
from perfaudit.verdicts import CounterChange, CountersVerdict, FindingsVerdict, Gate, GateVerdict, SelfTest, TimeVerdict

_STYLE: dict[GateVerdict, str] = {
    "pass": "green",
    "improved": "green",
    "regressed": "bold red",
    "inconclusive": "yellow",
    "accepted": "cyan",
    "not_judged": "yellow",
    "failed": "bold red",
}


def gate_parts(report: Report, findings: list[str], paint: Paint, width: int) -> list[str]:
    """The verdict and a block for each layer; `findings` are the new ones as text, which stand in the block of theirs."""
    gate = report.gate
    assert gate is not None
    parts = [_wrap_with_units(paint(headline(gate), _STYLE[gate.verdict]), width, "") + "\n"]
    if gate.findings is not None:
        parts += [_findings(gate.findings, paint, width), *findings]
    if on := machine(report):
        parts.append(_wrap_with_units(on, width, "") + "\n")
    return parts + layers(gate, paint, width)


def machine(report: Report) -> str:
    """What the numbers of now were taken on, "" where nothing was run."""
    env, gate = report.environment, report.gate
    if env is None or gate is None or not (gate.counters or gate.times or gate.self_tests):
        return ""
    torch = f", torch {env.torch}" if env.torch else ""
    driver = f", {env.driver}" if env.driver else ""
    return (
        f"run on {env.device}{driver}, {count(env.cores, 'core')}, {size(env.memory_bytes)}{torch}, Python {env.python}"
    )


def layers(gate: Gate, paint: Paint, width: int) -> list[str]:
    """The blocks of counters, times and self-tests, each with its numbers."""
    parts = [_counters(counted, gate, paint, width) for counted in gate.counters]
    parts += [_self_test(target, test, paint, width) for target, test in gate.self_tests.items()]
    return parts + [_time(timed, gate, paint, width) for timed in gate.times]


def what_next(report: Report) -> list[str]:
    """What can be typed next, where something can."""
    gate = report.gate
    assert gate is not None
    said = []
    if report.findings and gate.findings is not None and gate.findings.verdict == "regressed":
        said.append(f"`perfaudit explain {report.findings[0].rule}` says why the first new finding costs time")
    if gate.verdict == "regressed":
        slower = [timed.target for timed in gate.times if timed.verdict == "regressed"]
        grew = [counted.target for counted in gate.counters if counted.verdict == "regressed"]
        targets = "".join(f" {shlex.quote(target)}" for target in dict.fromkeys([*grew, *slower]))
        bound = f" --slower {_slowdown_to_accept(gate.times)}%" if slower and not grew else ""
        command = f'perfaudit gate update{targets} --accept "why"{bound}'
        said.append(f"a wanted change is accepted, with its reason, by `{command}`")
    if gate.verdict == "improved" and gate.kind == "baseline":
        said.append(
            '`perfaudit gate update --accept "why"` stores the better values, so that they are held from now on'
        )
    if any(timed.verdict == "inconclusive" and not timed.advice for timed in gate.times):
        said.append("a longer `--budget` or a machine with less else to do lets smaller slowdowns be seen")
    return said


def _slowdown_to_accept(times: Sequence[TimeVerdict]) -> int:
    """By how much a step may be slower so that all that regressed here is accepted: the next 5 % above every interval."""
    slower = [timed for timed in times if timed.verdict == "regressed"]
    highest = max(timed.high if timed.high and math.isfinite(timed.high) else timed.ratio or 1.0 for timed in slower)
    return max(5, 5 * math.ceil(round(20 * (highest - 1), 6)))


def _wrap_with_units(text: str, width: int, indent: str) -> str:
    """The text in lines, with no line between a number and its unit; a sign that no printable text has holds them together."""
    return wrap(re.sub(r"(?<=\d) (?=(?:%|ms|s|µs|[KMGT]iB|[kMGTP]?FLOP)(?!\w))", "\0", text), width, indent).replace(
        "\0", " "
    )


def _heading(name: str, verdict: GateVerdict, basis: str, paint: Paint) -> str:
    return f"{paint(name, 'bold')}: {paint(word(verdict), _STYLE[verdict])}" + (f" ({basis})" if basis else "")


def _block(heading: str, lines: list[str], width: int) -> str:
    return "\n".join([_wrap_with_units(heading, width, ""), *lines]) + "\n"


def _findings(found: FindingsVerdict, paint: Paint, width: int) -> str:
    lines = [_wrap_with_units(said, width, "  ") for said in (findings_counts(found), found.reason) if said]
    return _block(_heading("FINDINGS", found.verdict, "read from the source, nothing was run", paint), lines, width)


def _counters(counted: CountersVerdict, gate: Gate, paint: Paint, width: int) -> str:
    basis = "one training step, counted in both versions"
    if gate.kind == "self_test":
        basis = "one training step, counted in two processes"
    elif gate.kind == "baseline":
        basis = f"one training step: stored in {gate.against} → counted now"
    judged = counted.verdict not in ("not_judged", "failed")
    lines = [_wrap_with_units(counted.reason, width, "  ")] if counted.reason else []
    lines += _changes(counted.changes, paint, width)
    same = len(counted.counters.keys() - {change.counter for change in counted.changes} - counted.set_aside.keys())
    if judged and same:
        lines.append(f"  {count(same, 'counter')} the same")
    for why, names in _by_reason(counted.set_aside).items():
        lines.append(_wrap_with_units(f"set aside: {' and '.join(names)}: {why}", width, "  "))
    heading = _heading(f"COUNTERS {counted.target}", counted.verdict, basis if judged else "", paint)
    return _block(heading, lines, width)


def _by_reason(set_aside: dict[str, str]) -> dict[str, list[str]]:
    """Names of counters by why they are set aside: several often share it."""
    found: dict[str, list[str]] = {}
    for name, why in set_aside.items():
        found.setdefault(why, []).append(counter_name(name))
    return found


def _changes(changes: tuple[CounterChange, ...], paint: Paint, width: int) -> list[str]:
    """A line for each change, numbers under numbers, and below it where and by what it grew."""
    if not changes:
        return []
    names = max(len(counter_name(change.counter)) for change in changes)
    before = max(len(f"{change.before:,}") for change in changes)
    after = max(len(f"{change.after:,}") for change in changes)
    lines = []
    for change in in_order(changes):
        row = f"  {counter_name(change.counter):<{names}}  {change.before:>{before},} → {change.after:>{after},}"
        style = "red" if is_blamed(change) else "green" if not change.grew else "yellow"
        lines.append(f"{row}  {paint(difference(change), style)}")
        lines += [f"    {line}" for line in _below(change, width - 4)]
    return lines


def _below(change: CounterChange, width: int) -> list[str]:
    sizes = [amount(change.counter, value) for value in (change.before, change.after)]
    said = [f"{sizes[0] or change.before} → {sizes[1] or change.after}"] if any(sizes) else []
    said += [f"at {place_text(place)}" for place in change.places]
    prose = filter(None, [names_text(change), standing(change)])
    return said + [line for text in prose for line in _wrap_with_units(text, width, "").split("\n")]


def _time(timed: TimeVerdict, gate: Gate, paint: Paint, width: int) -> str:
    lines = [_wrap_with_units(sentence, width, "  ") for sentence in time_sentences(timed, gate)]
    if timed.verdict == "inconclusive":
        lines = [paint(line, "yellow") if "could not tell:" in line else line for line in lines]
    basis = "both versions measured here" if timed.ratio is not None and not timed.advice else ""
    last = "the last of these gates, " if gate.kind == "self_test" and basis else ""
    return _block(_heading(f"TIME {timed.target}", timed.verdict, last + basis, paint), lines, width)


def _self_test(target: str, test: SelfTest, paint: Paint, width: int) -> str:
    heading = f"{paint(f'SELF-TEST {target}', 'bold')} (the same code as both versions, measured here)"
    first, *others = self_test_sentences(test)
    painted = paint(first, "red" if test.false_alarms else "green")
    return _block(heading, [_wrap_with_units(line, width, "  ") for line in (painted, *others)], width)
