"""What the layers of a gate say together."""

from __future__ import annotations

import pytest

from perfaudit.gate.gate import overall
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, GateVerdict, TimeVerdict


@pytest.mark.parametrize(
    ("findings", "counters", "times", "together"),
    [
        ("pass", ["pass"], ["pass"], "pass"),
        ("pass", ["improved"], ["pass"], "improved"),
        ("pass", ["pass"], ["inconclusive"], "inconclusive"),
        ("pass", ["improved"], ["inconclusive"], "inconclusive"),
        (
            "regressed",
            ["failed"],
            ["inconclusive"],
            "regressed",
        ),  # a loss that is shown is told, whatever else is not known
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
