"""What a survey tells knobs of findings and of the profile."""

from __future__ import annotations

import pytest
from surveys import found, survey_of


def test_findings_are_told_by_rule() -> None:
    survey = survey_of([found("PA203", "b.py:9:5"), found("PA203", "a.py:3", by_hand=True), found("PA208", "a.py:7")])
    assert survey.places("PA203") == ["b.py:9:5", "a.py:3:1"]
    assert (survey.by_hand("PA203"), survey.by_hand("PA208")) == (["a.py:3"], [])
    assert (survey.patchable("PA203"), survey.patchable("PA203", "PA208"), survey.patchable("PA101")) == (1, 2, 0)


@pytest.mark.parametrize(("profile", "seconds"), [({}, 0), ({"forward": 2.0, "loading": 0.5}, 2.5)])
def test_a_step_takes_what_its_phases_take(profile: dict[str, float], seconds: float) -> None:
    assert survey_of(profile=profile).step_seconds == seconds
