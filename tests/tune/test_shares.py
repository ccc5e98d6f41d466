"""How time is shared out among knobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfaudit.tune import shares
from perfaudit.tune.shares import in_order, seconds_for, seconds_to_decide, weight

SHARES = {"all": 1.5, "half": 0.5, "least": 0.05, "little": 0.04, "absent": 1.0}


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Knobs with these shares of the step, of which 5 % must be gained; `absent` does not apply."""

    def knob(name: str) -> Any:
        why = "there is none" if name == "absent" else ""
        return SimpleNamespace(share=lambda survey: SHARES[name], min_gain=0.05, why_not=lambda survey: why)

    monkeypatch.setattr(shares, "knob", knob)
    return SimpleNamespace(survey=None, calibration=None, seconds_to_open=0.0)


def test_the_weight_of_a_knob_is_what_it_could_gain(profile: Any) -> None:
    assert {name: weight(profile.survey, name, True) for name in SHARES} == {
        "all": 1.0, "half": 0.5, "least": 0.1, "little": 0.0, "absent": 0.0
    }  # fmt: skip
    assert (weight(profile.survey, "little", False), weight(profile.survey, "absent", False)) == (0.1, 0.0)


def test_those_that_take_no_time_come_first_and_then_those_that_could_gain_most(profile: Any) -> None:
    assert in_order(profile.survey, ["least", "all", "little", "half", "absent"], True) == [
        "little",
        "absent",
        "all",
        "half",
        "least",
    ]


def test_what_two_variants_take_to_the_first_look(profile: Any) -> None:
    """Four generations; in each an opening and, in two blocks and one before them, nine steps."""
    profile.seconds_to_open = 2.0
    assert seconds_to_decide(profile) == 4 * 2 * 2.0
    profile.calibration = SimpleNamespace(seconds_per_step=1.0)
    assert seconds_to_decide(profile) == 4 * 2 * (2.0 + 9.0)


@pytest.mark.parametrize(
    ("name", "waiting", "left", "seconds"),
    [
        ("half", ["all"], 300.0, 100.0),
        ("half", [], 300.0, 300.0),
        ("half", ["all"], 30.0, 16.0),  # enough to decide it twice
        ("half", ["all"], 12.0, 12.0),
        ("absent", ["all"], 300.0, 0.0),
        ("absent", ["little"], 300.0, 0.0),
    ],
)
def test_seconds_of_a_knob(profile: Any, name: str, waiting: list[str], left: float, seconds: float) -> None:
    profile.seconds_to_open = 1.0
    assert seconds_for(profile, name, waiting, left, True) == pytest.approx(seconds)
