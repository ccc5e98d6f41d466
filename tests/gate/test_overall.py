"""What the layers of a gate say together, and what a whole gate reports where its layers are told what to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from surveys import facts

from perfaudit.config import Config
from perfaudit.errors import UserError
from perfaudit.findings import Finding
from perfaudit.gate import gate as module
from perfaudit.gate.gate import gate, overall
from perfaudit.gate.gitref import NoCommitYet
from perfaudit.gate.request import Known, Request
from perfaudit.gate.settings import GateSettings
from perfaudit.gate.target_counters import Counted
from perfaudit.measure.watch import Watch
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, Gate, GateVerdict, TimeVerdict


@pytest.mark.parametrize(
    ("findings", "counters", "times", "together"),
    [
        ("pass", ["pass"], ["pass"], "pass"),
        ("pass", ["improved"], ["pass"], "improved"),
        ("pass", ["pass"], ["inconclusive"], "inconclusive"),
        ("pass", ["improved"], ["inconclusive"], "inconclusive"),
        # A loss that is shown is told, whatever else is not known.
        ("regressed", ["failed"], ["inconclusive"], "regressed"),
        ("pass", ["failed"], ["inconclusive"], "failed"),
        ("pass", ["failed"], ["improved"], "failed"),
        ("pass", ["accepted"], ["accepted"], "pass"),
        ("not_judged", ["accepted"], [], "pass"),
        ("not_judged", ["not_judged"], ["not_judged"], "not_judged"),
        ("not_judged", [], [], "not_judged"),
        ("pass", ["not_judged"], ["not_judged"], "pass"),
    ],
)
def test_all_layers_together(
    findings: GateVerdict, counters: list[GateVerdict], times: list[GateVerdict], together: GateVerdict
) -> None:
    of_counters = [CountersVerdict("train.py", verdict) for verdict in counters]
    of_times = [TimeVerdict("train.py", verdict) for verdict in times]
    assert overall(FindingsVerdict(findings), of_counters, of_times) == together


@pytest.mark.parametrize(
    ("findings", "counters", "quads", "together"),
    [
        (None, [], [0], "not_judged"),  # a budget in which nothing fits is no pass
        (None, [], [0, 0], "not_judged"),
        (None, ["not_judged"], [0], "not_judged"),
        (None, [], [0, 3], "inconclusive"),
        ("pass", [], [0], "inconclusive"),  # which `--inconclusive fail` fails
        (None, ["pass"], [0], "inconclusive"),
        (None, ["inconclusive"], [0], "inconclusive"),
        (None, ["failed"], [0], "failed"),
    ],
)
def test_times_without_a_quad_judge_nothing_by_themselves(
    findings: GateVerdict | None, counters: list[GateVerdict], quads: list[int], together: GateVerdict
) -> None:
    of_counters = [CountersVerdict("train.py", verdict) for verdict in counters]
    of_times = [TimeVerdict("train.py", "inconclusive", quads=n) for n in quads]
    assert overall(FindingsVerdict(findings) if findings else None, of_counters, of_times) == together
    if together == "not_judged":  # nor does a new target beside them
        assert overall(None, of_counters, of_times, {"new.py"}) == "not_judged"


def test_a_target_that_is_new_passes_where_nothing_else_was_judged() -> None:
    new = [CountersVerdict("train.py", "not_judged", "new: main does not have it")]
    assert overall(None, new, [], {"train.py"}) == "pass"
    assert overall(None, new, []) == "not_judged"


TARGETS = (Target("a.py"), Target("b.py"))
FACTS = facts(device={"name": "a device"}, host={"torch": "9.9", "threads": 7})
NEW = (Finding("PA501", "name", "error", "slow"),)


def asked(against: str = "main", targets: tuple[Target, ...] = TARGETS, **settings: Any) -> Request:
    return Request(targets, GateSettings(against=against, **settings), Config())


Layers = Callable[[Request, Known, Watch], None]


def layers(monkeypatch: pytest.MonkeyPatch, do: Layers, kind: str = "commit") -> None:
    """Has this run in place of the layers against a commit, or against a file; the other kind must not run."""

    def never(*_: Any) -> None:
        raise AssertionError("the other kind of gate was run")

    monkeypatch.setattr(module, "against_commit", do if kind == "commit" else never)
    monkeypatch.setattr(module, "against_file", do if kind == "file" else never)
    monkeypatch.setattr(module, "refusal", lambda: "")


def found(request: Request, known: Known, watch: Watch) -> None:
    known.against, known.commit, known.notes = "main (1f2e)", "1f2e", ["a note"]
    known.findings, known.new = FindingsVerdict("pass", known=2), NEW
    known.scanned = Report("scan", files=5)
    for target in request.targets:
        known.counters[target.file] = CountersVerdict(target.file, "pass")
        known.times[target.file] = TimeVerdict(target.file, "inconclusive", quads=4)
    known.counted["a.py"] = Counted({}, facts=FACTS)


@pytest.mark.parametrize(("inconclusive", "fails"), [("pass", False), ("fail", True)])
@pytest.mark.parametrize(("against", "kind"), [("main", "ref"), ("", "baseline")])
def test_a_whole_report(
    monkeypatch: pytest.MonkeyPatch, inconclusive: str, fails: bool, against: str, kind: str
) -> None:
    layers(monkeypatch, found, "commit" if against else "file")
    report = gate(asked(against, inconclusive=inconclusive), Watch())
    assert report.gate is not None and report.environment is not None and report.gate.seconds >= 0
    assert replace(report.gate, seconds=0.0) == Gate(
        "main (1f2e)",
        kind,  # type: ignore[arg-type]  # a row's text
        "inconclusive",
        "1f2e",
        fails,
        FindingsVerdict("pass", known=2),
        (CountersVerdict("a.py", "pass"), CountersVerdict("b.py", "pass")),
        (TimeVerdict("a.py", "inconclusive", quads=4), TimeVerdict("b.py", "inconclusive", quads=4)),
        notes=("a note",),
    )
    assert (report.command, report.target, report.files, report.findings) == ("gate", "a.py, b.py", 5, NEW)
    assert (report.environment.torch, report.environment.device, report.interrupted) == ("9.9", "a device", False)
    monkeypatch.setattr(module, "refusal", lambda: "processes are started anew")
    again = gate(asked(against), Watch()).gate
    assert again is not None and again.notes == ("a note", "processes are started anew")


@pytest.mark.parametrize(
    ("verdict", "fails"),
    [("pass", False), ("improved", False), ("regressed", True), ("failed", True), ("not_judged", True)],
)
def test_what_fails_a_build(monkeypatch: pytest.MonkeyPatch, verdict: GateVerdict, fails: bool) -> None:
    def judge(request: Request, known: Known, watch: Watch) -> None:
        known.counters["a.py"] = CountersVerdict("a.py", verdict)

    layers(monkeypatch, judge)
    made = gate(asked(), Watch()).gate
    assert made is not None and (made.verdict, made.fails) == (verdict, fails)


@pytest.mark.parametrize(
    ("known_by_then", "said", "note"),
    [
        ({}, "failed", "interrupted before findings and counters and time were finished"),
        ({"findings": "pass"}, "failed", "interrupted before counters and time were finished"),
        ({"findings": "regressed", "counters": 1}, "regressed", "interrupted before counters and time were finished"),
        ({"findings": "pass", "counters": 2, "times": 1}, "failed", "interrupted before time was finished"),
        ({"findings": "pass", "counters": 2, "times": 2}, "failed", ""),
    ],
)
def test_an_interruption_keeps_what_is_known(
    monkeypatch: pytest.MonkeyPatch, known_by_then: dict[str, Any], said: str, note: str
) -> None:
    def cut(request: Request, known: Known, watch: Watch) -> None:
        known.against = "main"
        if "findings" in known_by_then:
            known.findings = FindingsVerdict(known_by_then["findings"])
        for target in TARGETS[: known_by_then.get("counters", 0)]:
            known.counters[target.file] = CountersVerdict(target.file, "pass")
        for target in TARGETS[: known_by_then.get("times", 0)]:
            known.times[target.file] = TimeVerdict(target.file, "pass")
        raise KeyboardInterrupt

    layers(monkeypatch, cut)
    report = gate(asked(), Watch())
    assert report.gate is not None
    assert (report.interrupted, report.gate.verdict, report.gate.fails) == (True, said, True)
    assert report.gate.notes == ((note,) if note else ())


def test_an_interruption_before_anything_was_begun_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: Any) -> None:
        raise KeyboardInterrupt

    layers(monkeypatch, cut)
    with pytest.raises(KeyboardInterrupt):
        gate(asked(), Watch())


def test_before_the_first_commit_findings_pass_and_nothing_else_can_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_commit(*_: Any) -> None:
        raise NoCommitYet("no commit")

    layers(monkeypatch, no_commit)
    made = gate(asked(layers=("findings",)), Watch()).gate
    assert made is not None
    assert made.findings == FindingsVerdict("pass", "no commit yet, so nothing can be worse than before")
    for more in ((), ("findings", "counters")):
        with pytest.raises(NoCommitYet):
            gate(asked(layers=more), Watch())
    with pytest.raises(UserError, match="is named twice"):
        gate(asked(targets=TARGETS[:1] * 2), Watch())
