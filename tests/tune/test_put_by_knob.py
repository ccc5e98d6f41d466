"""A finding of a script is raced by a knob's setting where the knob's patch is the finding's own, and by nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from surveys import found, survey_of

from perfaudit.findings import Edit, Fix, Location, Span
from perfaudit.knobs import Refused
from perfaudit.measure.entrants import BASE
from perfaudit.measure.facts import Script
from perfaudit.tune import put_by_knob
from perfaudit.tune.candidates import PATCH, Candidate, in_place
from perfaudit.tune.priced_findings import Waiting

TEXT = "import torch\n\na = 0\n"
PLACE = Location("t.py", 3, 1, 3, 6)


def candidate(key: str, knob: str, text: str, **more: Any) -> Candidate:
    fix = Fix("a", "safe", (), (Edit(Span(18, 19), text),))
    return Candidate(key, knob, {"key": key}, fix, PLACE, TEXT, more.pop("way", "code"), **more)


def waiting(rule: str, text: str) -> Waiting:
    own = candidate(rule, PATCH, text)
    return Waiting(found(rule), own, [own])


@pytest.fixture
def anomaly(monkeypatch: pytest.MonkeyPatch) -> None:
    def candidates_of(session: Any, survey: Any, name: str, *_: Any) -> list[Candidate]:
        if name != "anomaly":
            raise Refused("nothing to try")
        return [candidate("anomaly off", "anomaly", "1", way="setting", settings_in_child={"anomaly": False})]

    monkeypatch.setattr(put_by_knob, "candidates_of", candidates_of)


def test_what_a_knob_patches_alike_is_put_in_place_by_it(anomaly: None) -> None:
    same, other, unknown = waiting("PA501", "1"), waiting("PA501", "2"), waiting("PA402", "1")
    script: Any = survey_of(script=Script())
    put_by_knob.put_by_knobs(None, script, [same, other, unknown], None)  # type: ignore[arg-type]  # nobody asks
    assert (same.own.knob, same.own.way, same.own.applying_knob) == (PATCH, "setting", "anomaly")
    assert same.tried == [same.own]
    told = in_place(BASE, same.tried)
    assert (told["settings"], told["code"]) == ([["perfaudit.knobs.anomaly:KNOB", {"anomaly": False}]], {})
    assert told["whole"] == {"t.py": TEXT.replace("0", "1")}
    assert [each.own.way for each in (other, unknown)] == ["code", "code"]


def test_with_factories_nothing_is_put_in_place_otherwise(anomaly: None) -> None:
    same = waiting("PA501", "1")
    before = replace(same.own)
    put_by_knob.put_by_knobs(None, survey_of(), [same], None)  # type: ignore[arg-type]  # nobody asks
    assert same.own == before
