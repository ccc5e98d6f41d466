"""Zeroed gradients: the finding is the user's setting, and the words name its lines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from surveys import found, survey_of

from perfaudit.knobs import Bench, Probe, Survey, Told, zero_grad
from perfaudit.knobs._code import Code

KNOB = zero_grad.KNOB


def survey(*places: str, by_hand: bool = False) -> Survey:
    return survey_of(found("PA401", place, by_hand) for place in places)


@pytest.mark.parametrize(
    ("given", "now", "reason"),
    [
        (survey("train.py:3"), False, ""),
        (survey(), True, "gradients are dropped already (the default of zero_grad)"),
        (survey_of(), True, "gradients are dropped already (the default of zero_grad)"),  # no scan was made
    ],
)
def test_the_finding_is_the_current_setting(given: Survey, now: bool, reason: str) -> None:
    assert KNOB.current(given) == {"set_to_none": now}
    assert KNOB.not_applicable(given) == reason


def test_dropping_is_tried_and_both_are_applied_to_our_step() -> None:
    bench = Bench(survey("train.py:3"), 2, 1, lambda s: Probe(s), lambda *a, **k: {})
    assert KNOB.candidates(bench) == [{"set_to_none": True}]
    assert KNOB.base_is_applied
    for value in (False, True):
        training = SimpleNamespace(set_to_none=None)
        with KNOB.setup({"set_to_none": value}).applied(training):
            assert training.set_to_none is value


def test_the_words_name_the_lines() -> None:
    given = survey("a.py:3:5", "a.py:9:5", "b.py:1:1")
    assert KNOB.words({"set_to_none": True}, given) == (
        "drop gradients instead of filling them with zeros, in a.py:3:5, a.py:9:5, b.py:1:1"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            survey("a.py:3:5", "a.py:9:5", "b.py:1:1"),
            "the line stands in a loop that perfaudit does not run: "
            "`perfaudit scan a.py b.py --select PA401 --fix` writes it",
        ),
        (survey("a.py:3", by_hand=True), ""),
    ],
)
def test_who_writes_the_line_is_said(given: Survey, said: str) -> None:
    assert KNOB.handed_over({"set_to_none": True}, given) == said


def test_a_line_that_is_not_run_is_not_raced_as_a_patch() -> None:
    assert KNOB.patch(Code("train.py", survey("train.py:3")), {"set_to_none": True}) is None


def test_what_else_changes_is_said() -> None:
    assert "momentum" in KNOB.remarks(Told(survey(), (), (), {}, {"set_to_none": True}))[0]
    assert KNOB.remarks(Told(survey(), (), (), {}, None)) == []
