"""What a gate complains of besides new findings, one by one, for formats that are lists: annotations, results, tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from perfaudit.render.counter_words import (
    counter_name,
    difference,
    in_order,
    is_blamed,
    names_text,
    place_text,
    standing,
    with_basis,
)
from perfaudit.render.gate_words import counters_phrase, findings_phrase, time_phrase
from perfaudit.render.time_words import self_test_sentences, time_sentences
from perfaudit.verdicts import CounterChange, CountersVerdict, Gate, GateVerdict, Place, TimeVerdict

COUNTER_GREW, STEP_SLOWER = "gate/counter-grew", "gate/step-slower"
Level = Literal["error", "warning", "notice"]


@dataclass(frozen=True, slots=True)
class Complaint:
    """A thing to show beside the code or in a list: a counter that grew, a step that is slower, what could not be told.

    check: COUNTER_GREW, STEP_SLOWER, or "gate/" with the verdict. places: where it is, as the gate has them. counter: its
    name, "" for other layers. file: of the target.
    """

    check: str
    level: Level
    message: str
    target: str = ""
    places: tuple[Place, ...] = ()
    counter: str = ""
    file: str = ""

    @property
    def place(self) -> Place:
        """The first of its places; without any, the beginning of the target's file, for formats that need one."""
        return self.places[0] if self.places else Place(self.file, 1, 0)


def complaints(gate: Gate) -> list[Complaint]:
    """Of counters and times: what fails the build first, slower steps before counters, those with a line before others."""
    found = [*_of_times(gate), *_of_counters(gate)]
    if gate.findings is not None and gate.findings.verdict in ("failed", "not_judged", "inconclusive", "accepted"):
        message = "\n".join(filter(None, [findings_phrase(gate.findings), gate.findings.reason]))
        found.append(_other(gate, gate.findings.verdict, message, ""))
    for target, test in gate.self_tests.items():
        message = "\n".join([f"self-test of {target}", *self_test_sentences(test)])
        found.append(Complaint("gate/self-test", "warning" if test.false_alarms else "notice", message, target))
    found = [replace(each, file=gate.files.get(each.target, each.target)) for each in found]
    order = ("error", "warning", "notice")
    return sorted(found, key=lambda c: (order.index(c.level), c.check != STEP_SLOWER, not c.places))


def judged_times(gate: Gate) -> list[TimeVerdict]:
    """The times that say something of the code: of a self-test, whose code is one, only what could not be measured."""
    return [timed for timed in gate.times if gate.kind != "self_test" or timed.verdict == "failed"]


def _of_times(gate: Gate) -> list[Complaint]:
    found = []
    for timed in judged_times(gate):
        message = "\n".join([time_phrase(timed), *time_sentences(timed, gate)])
        if timed.verdict == "regressed":
            found.append(Complaint(STEP_SLOWER, "error", message, timed.target))
        elif timed.verdict != "pass":
            found.append(_other(gate, timed.verdict, message, timed.target))
    return found


def _of_counters(gate: Gate) -> list[Complaint]:
    found = []
    for counted in gate.counters:
        if counted.verdict == "regressed":
            found += [_growth_complaint(counted, change) for change in in_order(counted.changes) if is_blamed(change)]
        elif counted.verdict != "pass":
            message = "\n".join([counters_phrase(counted), *counter_sentences(counted)])
            level = "warning" if _has_drifted(gate, counted) else _level(gate, counted.verdict)
            found.append(Complaint(f"gate/{counted.verdict.replace('_', '-')}", level, message, counted.target))
    return found


def _has_drifted(gate: Gate, counted: CountersVerdict) -> bool:
    """Whether a file holds counters that can no longer be compared: a check that nobody would miss."""
    return gate.kind == "baseline" and counted.verdict == "not_judged" and not counted.reason.startswith("new:")


def counter_sentences(counted: CountersVerdict) -> list[str]:
    """What is known of one target's counters, a sentence each: why, what changed and where, what was set aside."""
    said = [counted.reason] if counted.reason else []
    for change in in_order(counted.changes):
        said.append(f"{_change_words(change)}: {standing(change)}" if standing(change) else _change_words(change))
        said += _where(change)
    return said + [f"set aside: {counter_name(name)}: {why}" for name, why in counted.set_aside.items()]


def _where(change: CounterChange) -> list[str]:
    said = [f"at {place_text(place)}" for place in change.places]
    return [*said, *filter(None, [names_text(change)])]


def _growth_complaint(counted: CountersVerdict, change: CounterChange) -> Complaint:
    said = [f"{counted.target}: {_change_words(change)}", *_where(change)]
    return Complaint(COUNTER_GREW, "error", "\n".join(said), counted.target, change.places, change.counter)


def _change_words(change: CounterChange) -> str:
    return f"{with_basis(change.counter)} {change.before:,} → {change.after:,}, {difference(change)}"


def _other(gate: Gate, verdict: GateVerdict, message: str, target: str) -> Complaint:
    return Complaint(f"gate/{verdict.replace('_', '-')}", _level(gate, verdict), message, target)


def _level(gate: Gate, verdict: GateVerdict) -> Level:
    if verdict == "failed" or is_failing(gate, verdict):
        return "error"
    return "warning" if verdict == "inconclusive" else "notice"


def is_failing(gate: Gate, verdict: GateVerdict) -> bool:
    """Whether a layer's verdict is a reason for which this gate fails the build; that of a broken measurement is another."""
    return verdict == "regressed" or (verdict == "inconclusive" and gate.fails and gate.verdict == "inconclusive")
