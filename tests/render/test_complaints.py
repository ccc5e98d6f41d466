"""What a gate complains of, one by one: its check, how grave it is, and the order in a list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gates import EVEN, FILE, GATES, GREW, NOW, SLOWER

from perfaudit.render import gate_sarif
from perfaudit.render.complaints import complaints, judged_times
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, Gate, GateVerdict, Place, SelfTest


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("pass", []),
        ("improved", [("gate/improved", "notice", "train.py", "")]),
        ("new findings", []),  # which stand for themselves
        ("counters", [("gate/counter-grew", "error", "train.py", "host_syncs"),
                      ("gate/counter-grew", "error", "train.py", "bytes_allocated")]),
        ("time", [("gate/step-slower", "error", "train.py", "")]),
        ("inconclusive, passes", [("gate/inconclusive", "warning", "train.py", "")]),
        ("inconclusive, fails", [("gate/inconclusive", "error", "train.py", "")]),
        ("accepted", [("gate/accepted", "notice", "train.py", "")] * 2 + [("gate/accepted", "notice", "", "")]),
        ("new target", [("gate/not-judged", "notice", "new.py", "")] * 2),
        ("drifted", [("gate/not-judged", "warning", "train.py", "")]),
        ("broken", [("gate/failed", "error", "train.py", ""), ("gate/not-judged", "notice", "train.py", "")]),
        ("self-test", [("gate/self-test", "warning", "eval.py", ""), ("gate/self-test", "notice", "train.py", "")]),
        ("several", [("gate/step-slower", "error", "eval.py", ""),
                     ("gate/counter-grew", "error", "eval.py", "host_syncs"),
                     ("gate/failed", "error", "gan.py", ""), ("gate/inconclusive", "warning", "train.py", "")]),
    ],
)  # fmt: skip
def test_the_complaints_of_a_gate(name: str, found: list[tuple[str, str, str, str]]) -> None:
    gate = GATES[name].gate
    assert gate is not None
    assert [(c.check, c.level, c.target, c.counter) for c in complaints(gate)] == found


def test_slower_steps_come_first_and_then_what_has_a_line() -> None:
    lineless = replace(GREW, target="a.py", changes=GREW.changes[:1])
    found = complaints(Gate("main", "ref", "regressed", fails=True, counters=(lineless, GREW), times=(SLOWER,)))
    assert [(c.target, c.counter) for c in found] == [
        ("train.py", ""), ("train.py", "host_syncs"), ("a.py", "bytes_allocated"), ("train.py", "bytes_allocated"),
    ]  # fmt: skip
    assert [c.place for c in found[1:3]] == [Place("train.py", 88, 13, "item"), Place("a.py", 1, 0)]


def test_the_place_of_a_script_is_its_file() -> None:
    slow = replace(SLOWER, target="small")
    (found,) = complaints(Gate("main", "ref", "regressed", fails=True, times=(slow,), files={"small": "train.py"}))
    assert (found.target, found.place) == ("small", Place("train.py", 1, 0))


@pytest.mark.parametrize(
    ("verdict", "level"),
    [
        ("failed", "error"),
        ("not_judged", "notice"),
        ("inconclusive", "warning"),
        ("accepted", "notice"),
        ("pass", None),
    ],
)
def test_findings_that_say_something_besides_new_ones(verdict: GateVerdict, level: str | None) -> None:
    gate = Gate("main", "ref", verdict, findings=FindingsVerdict(verdict, "why"))
    assert [(c.check, c.level, c.message.splitlines()[-1]) for c in complaints(gate)] == (
        [(f"gate/{verdict.replace('_', '-')}", level, "why")] if level else []
    )


@pytest.mark.parametrize(
    ("kind", "reason", "level"),
    [("baseline", "not comparable", "warning"), ("baseline", "new: it has none", "notice"), ("ref", "why", "notice")],
)
def test_counters_of_a_file_that_can_no_longer_be_compared_are_a_warning(kind: str, reason: str, level: str) -> None:
    counted = CountersVerdict("train.py", "not_judged", reason, NOW)
    (found,) = complaints(Gate(FILE, kind, "not_judged", counters=(counted,)))  # type: ignore[arg-type]  # a row's text
    assert (found.check, found.level, found.message) == (
        "gate/not-judged", level, f"counters of train.py not judged\n{reason}",
    )  # fmt: skip


def test_times_of_a_self_test_say_nothing_of_the_code_unless_they_failed() -> None:
    failed = replace(EVEN, verdict="failed", target="b.py")
    gate = Gate(
        "itself", "self_test", "failed", times=(SLOWER, failed), self_tests={"a.py": SelfTest(1, 0, 0, (), 1.0)}
    )
    assert judged_times(gate) == [failed]
    assert judged_times(replace(gate, kind="ref")) == [SLOWER, failed]
    assert [(c.check, c.target) for c in complaints(gate)] == [("gate/failed", "b.py"), ("gate/self-test", "a.py")]


def test_the_rules_of_a_gate_in_sarif() -> None:
    grew, slower = gate_sarif.rules().values()
    why = (
        "One training step dispatches more operators, waits for the device more often, or moves or holds more bytes than in "
        "the version it was compared with. These are counts of one observed step, not times: they are the same on every "
        "run, or they are set aside. A wanted change is accepted with `perfaudit gate update --accept`."
    )
    assert grew == {
        "id": "gate/counter-grew",
        "name": "counter-grew",
        "shortDescription": {"text": "A training step does more than before."},
        "fullDescription": {"text": why},
        "help": {"text": why, "markdown": f"{why}\n"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["performance", "gate"], "problem.severity": "error"},
    }
    assert (slower["id"], slower["name"]) == ("gate/step-slower", "step-slower")
    assert slower["shortDescription"] == {"text": "A training step takes longer than before."}
    assert slower["help"]["text"] == (
        "Both versions were measured in turn on one machine, and the whole interval of the ratio of "
        "their times per step lies above the slowdown that is tolerated. A wanted change is accepted with `perfaudit gate "
        "update --accept`."
    )
