"""What a gate's report says of one layer and target, in the words of a test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from perfaudit.pytest_plugin.gate_run import NotJudged, Ran, report_of
from perfaudit.pytest_plugin.verdict_json import gate_of
from perfaudit.render.counter_words import in_order, is_blamed
from perfaudit.render.gate import layers
from perfaudit.render.gate_words import counters_phrase, findings_phrase, time_phrase
from perfaudit.render.paint import plain
from perfaudit.render.time_words import time_sentences
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, Gate, GateVerdict, TimeVerdict

_WIDTH = 100  # columns


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict. line: in one line, for pytest's summary; details: what stands below it where a test fails, "" or lines."""

    verdict: GateVerdict
    line: str
    details: str = ""

    @property
    def words(self) -> str:
        return f"{self.line}\n{self.details}".rstrip()


def said_of(ran: Ran, layer: str, target: str) -> list[Said]:
    """What a gate says of one layer and target, which is more than one verdict where a target is named twice.

    Raises NotJudged where it says nothing or has judged nothing at all, which is no pass, and for a gate without a report.
    """
    report = report_of(ran)
    try:
        gate = gate_of(report)
        said = _of_layer(gate, report["findings"], layer, target)
    except (KeyError, TypeError, AttributeError) as error:
        raise NotJudged(f"the gate's report cannot be read: {error!r}") from error
    notes = "".join(f"\n  {note}" for note in gate.notes)
    if not said:
        raise NotJudged(f"the gate says nothing of {layer} of {target or 'the project'} against {gate.against}{notes}")
    if gate.verdict == "not_judged":
        raise NotJudged("the gate judged nothing: " + "\n".join(each.words for each in said) + notes)
    return [replace(each, details=(each.details.rstrip() + notes).strip("\n")) for each in said]


def _of_layer(gate: Gate, findings: list[dict[str, Any]], layer: str, target: str) -> list[Said]:  # Any: nested JSON
    if layer == "findings":
        return [_findings(gate.findings, gate, findings)] if gate.findings else []
    if layer == "counters":
        return [_counters(item, gate) for item in gate.counters if item.target == target]
    return [_time(item, gate) for item in gate.times if item.target == target]


def _findings(found: FindingsVerdict, gate: Gate, findings: list[dict[str, Any]]) -> Said:  # Any: nested JSON
    line = f"{findings_phrase(found)} against {gate.against}{_why(found.reason)}"
    return Said(found.verdict, line, "\n".join(f"  {_finding(item)}" for item in findings))


def _finding(item: dict[str, Any]) -> str:  # Any: nested JSON
    cell = f"cell {item['cell']}:" if item.get("cell") else ""
    place = f"{item['path']}:{cell}{item['line']}:{item['column']} " if item.get("path") else ""
    return f"{place}{item['rule']} {item['message']}"


def _counters(counted: CountersVerdict, gate: Gate) -> Said:
    """The line names the first place to blame: pytest's summary is all that some people read."""
    blamed = [place for change in in_order(counted.changes) if is_blamed(change) for place in change.places]
    at = f" at {blamed[0].path}:{blamed[0].line}" if counted.verdict == "regressed" and blamed else ""
    line = f"{counters_phrase(counted)}{at}, {counted.target} against {gate.against}{_why(counted.reason)}"
    return Said(counted.verdict, line, _block(replace(gate, counters=(counted,), times=())))


def _time(timed: TimeVerdict, gate: Gate) -> Said:
    """Times of a file decide nothing, so they are not judged."""
    line = f"{time_phrase(timed)} against {gate.against}"
    if timed.verdict in ("inconclusive", "not_judged", "failed") or timed.advice:
        line += _why("; ".join(time_sentences(timed, gate)))
    verdict: GateVerdict = "not_judged" if timed.advice else timed.verdict
    return Said(verdict, line, _block(replace(gate, counters=(), times=(timed,))))


def _block(gate: Gate) -> str:
    return "".join(layers(replace(gate, self_tests={}), plain, _WIDTH))


def _why(reason: str) -> str:
    return f": {' '.join(reason.split())}" if reason else ""
