"""Zeroed gradients: the finding is the user's setting, and the words name its lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfaudit.knobs import Bench, Probe, Told, zero_grad
from perfaudit.knobs._code import Code

KNOB = zero_grad.KNOB


def facts(*places: str, patchable: int | None = None) -> dict[str, Any]:
    count = len(places) if patchable is None else patchable
    return {"places": {"PA401": list(places)} if places else {}, "rules": {"PA401": count} if count else {}}


@pytest.mark.parametrize(
    ("given", "now", "reason"),
    [
        (facts("train.py:3"), False, ""),
        (facts(), True, "gradients are dropped already (the default of zero_grad)"),
        ({}, True, "gradients are dropped already (the default of zero_grad)"),  # no scan was made
    ],
)
def test_the_finding_is_the_current_setting(given: dict[str, Any], now: bool, reason: str) -> None:
    assert KNOB.current(given) == {"set_to_none": now}
    assert KNOB.not_applicable(given) == reason


def test_dropping_is_tried_and_both_are_applied_to_our_step() -> None:
    bench = Bench(facts("train.py:3"), 2, 1, lambda s: Probe(s), lambda *a, **k: {})
    assert KNOB.candidates(bench) == [{"set_to_none": True}]
    assert KNOB.base_is_applied
    for value in (False, True):
        training = SimpleNamespace(set_to_none=None)
        with KNOB.setup({"set_to_none": value}).applied(training):
            assert training.set_to_none is value


def test_the_words_name_the_lines() -> None:
    given = facts("a.py:3:5", "a.py:9:5", "b.py:1:1")
    assert KNOB.words({"set_to_none": True}, given) == (
        "drop gradients instead of filling them with zeros, in a.py:3:5, a.py:9:5, b.py:1:1"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            facts("a.py:3:5", "a.py:9:5", "b.py:1:1"),
            "the line stands in a loop that perfaudit does not run: "
            "`perfaudit scan a.py b.py --select PA401 --fix` writes it",
        ),
        (facts("a.py:3", patchable=0), ""),
    ],
)
def test_who_writes_the_line_is_said(given: dict[str, Any], said: str) -> None:
    assert KNOB.handed_over({"set_to_none": True}, given) == said


def test_a_line_that_is_not_run_is_not_raced_as_a_patch() -> None:
    assert KNOB.patch(Code("train.py", facts("train.py:3")), {"set_to_none": True}) is None


def test_what_else_changes_is_said() -> None:
    assert "momentum" in KNOB.remarks(Told(facts(), (), (), {}, {"set_to_none": True}))[0]
    assert KNOB.remarks(Told(facts(), (), (), {}, None)) == []
