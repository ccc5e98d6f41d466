"""What a running set of ranks has shown, and which patches go into the race of fresh sets."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from perfaudit.findings import Edit, Fix, Location, Span
from perfaudit.measure.race import CONTROL, DECIDED
from perfaudit.measurements import Interval
from perfaudit.static import edit
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.raced import Raced, Seen
from perfaudit.tune.ranks.patches import is_unchanged
from perfaudit.tune.ranks.screened import Screened

TEXT = "optimizer = AdamW(parameters)\nloader.zero_grad(False)\n"
FASTER, SLOWER, SAME = (0.8, 0.75, 0.85), (1.2, 1.1, 1.3), (1.0, 0.98, 1.02)


def candidate(knob: str, name: str, value: object, old: str, new: str, path: str = "train.py") -> Candidate:
    start = TEXT.index(old)
    fix = Fix(f"{knob} as {value}", "unsafe", ("rounding",), (Edit(Span(start, start + len(old)), new),), "")
    return Candidate(f"{knob} {value}", knob, {name: value}, fix, Location(path, 1, 1, 1, 2), TEXT, "setting")


FUSED = candidate("optimizer", "update", "fused", "AdamW(parameters)", "AdamW(parameters, fused=True)")
LISTS = candidate("optimizer", "update", "foreach", "AdamW(parameters)", "AdamW(parameters, foreach=True)")
NONE = candidate("zero_grad", "set_to_none", True, "zero_grad(False)", "zero_grad()")


def screened(*of_each: tuple[Candidate, Interval], control: Interval = SAME) -> Screened:
    found = Screened(raced=Raced(entrants={CONTROL: Seen(20, "", control)}))
    for each, interval in of_each:
        found.candidates[each.key], found.now[each.key] = each, {next(iter(each.settings)): "now"}
        found.raced.entrants[each.key] = Seen(20, DECIDED, interval)
    return found


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TEXT)


def test_what_pays_goes_on_as_one_patch_with_the_best_setting_of_each_knob() -> None:
    (only,) = screened((LISTS, (0.9, 0.88, 0.92)), (FUSED, FASTER), (NONE, FASTER)).survivors()
    assert only.key == "update='fused', set_to_none=True"
    assert (only.settings, only.now) == (
        {"update": "fused", "set_to_none": True},
        {"update": "now", "set_to_none": "now"},
    )
    assert only.text == "optimizer = AdamW(parameters, fused=True)\nloader.zero_grad()\n"
    assert only.text == edit.apply(TEXT, only.fix.edits) and ast.parse(only.text)
    assert "-optimizer = AdamW(parameters)\n" in only.fix.diff
    assert only.fix.changes == ("rounding",)
    assert is_unchanged(only)


def test_what_does_not_pay_goes_nowhere() -> None:
    found = screened((FUSED, SLOWER), (NONE, SAME))
    assert found.survivors() == []
    assert found.notes()[-1] == "no patch that was screened in the running set was shown to pay"
    assert [(each.knob, each.candidate, each.verdict) for each in found.comparisons()] == [
        ("patch", {"patch": "update=fused"}, "slower"),
        ("patch", {"patch": "set_to_none=True"}, "undecided"),
    ]


def test_patches_of_two_files_or_of_the_same_text_are_raced_each_by_itself() -> None:
    other = candidate("zero_grad", "set_to_none", True, "zero_grad(False)", "zero_grad()", "other.py")
    same = candidate("zero_grad", "set_to_none", True, "AdamW(parameters)", "Other(parameters)")
    for second in (other, same):
        keys = [each.key for each in screened((FUSED, FASTER), (second, FASTER)).survivors()]
        assert keys == ["update='fused'", "set_to_none=True"]


def test_where_identical_code_came_out_different_nothing_goes_on() -> None:
    found = screened((FUSED, FASTER), control=(0.9, 0.85, 0.95))
    assert found.survivors() == []
    assert "identical code took 0.900 [0.850, 0.950]" in found.notes()[0]
    assert found.notes()[-1].startswith("what was screened is not raced in fresh sets: ")


def test_a_candidate_that_a_rank_cannot_run_is_named_with_the_reason() -> None:
    found = screened((FUSED, FASTER), (NONE, FASTER))
    found.raced.refused[FUSED.key] = "with it, a step raises ValueError: no (train.py:1) on rank 1"
    del found.raced.entrants[FUSED.key]
    assert (
        "update=fused left the running set: with it, a step raises ValueError: no (train.py:1) on rank 1"
        in found.notes()
    )
    assert [each.key for each in found.survivors()] == ["set_to_none=True"]
