"""What a running set of ranks has shown, and which patches go into the race of fresh sets."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.findings import Edit, Fix, Location, Span
from perfaudit.measure.attribute_names import find_named
from perfaudit.measure.entrants import CONTROL, DECIDED, FUTILE, TWIN_CONTROL
from perfaudit.measure.wrapped_otherwise import FOUND_AT
from perfaudit.measurements import Interval
from perfaudit.static import edit
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.race_results import Raced, Seen
from perfaudit.tune.ranks.candidates import candidates_of
from perfaudit.tune.ranks.patches import RankPatch, is_unchanged
from perfaudit.tune.ranks.screened_patches import Screened, _in_place, _wrapping

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
        ("patch", {"patch": "update='fused'"}, "slower"),
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


def test_where_the_control_of_twins_came_out_different_only_what_is_a_twin_goes_nowhere() -> None:
    found = screened((FUSED, FASTER), (NONE, FASTER))
    found.raced.ways = {FUSED.key: "setting", NONE.key: "twin"}
    found.raced.entrants[TWIN_CONTROL] = Seen(20, "", (0.9, 0.85, 0.95))
    found.raced.log_ratios = {FUSED.key: [math.log(0.8)] * 20, NONE.key: [math.log(0.8)] * 20}
    assert [each.key for each in found.survivors()] == ["update='fused'"]
    assert found.looks() == {FUSED.key: pytest.approx(0.2)}
    assert found.notes()[-1].startswith("what was screened of set_to_none=True does not count: ")


def test_a_candidate_that_a_rank_cannot_run_is_named_with_the_reason() -> None:
    found = screened((FUSED, FASTER), (NONE, FASTER))
    found.raced.refused[FUSED.key] = "with it, a step raises ValueError: no (train.py:1) on rank 1"
    del found.raced.entrants[FUSED.key]
    assert (
        "update='fused' left the running set: with it, a step raises ValueError: no (train.py:1) on rank 1"
        in found.notes()
    )
    assert [each.key for each in found.survivors()] == ["set_to_none=True"]


CALL = "model = DistributedDataParallel(net)\n"
DDP = "from torch.nn.parallel import DistributedDataParallel\n" + CALL + TEXT


def of_ranks(*changes: str) -> list[RankPatch]:
    """The patches of a call of DistributedDataParallel in `train.py`."""
    Path("train.py").write_text(DDP)
    return candidates_of(["train.py"], frozenset(changes)).candidates


def running(
    raced: dict[str, tuple[int, str, Interval | None]], control: Interval | None = SAME, ratio: float = 0.9
) -> Screened:
    """A running set in which patches of the call were raced: by their key, quads, why they left, and their interval."""
    found = Screened(raced=Raced(entrants={CONTROL: Seen(20, "", control)}))
    for each in of_ranks("rounding", "precision"):
        if (wrapping := _wrapping(each)) is not None:
            found.candidates[each.key], found.now[each.key] = wrapping, each.now
    for key, (quads, left, interval) in raced.items():
        found.raced.entrants[key] = Seen(quads, left, interval)
        found.raced.log_ratios[key] = [math.log(ratio)] * quads
    return found


def test_patches_of_the_call_are_screened_with_what_they_change_and_no_others() -> None:
    found = running({})
    assert {key: each.settings for key, each in found.candidates.items()} == {
        "gradient_as_bucket_view=True": {"gradient_as_bucket_view": True},
        "static_graph=True": {"static_graph": True},
        "gradient_as_bucket_view=True, static_graph=True": {"gradient_as_bucket_view": True, "static_graph": True},
        "bucket_cap_mb=5": {"bucket_cap_mb": 5},
        "bucket_cap_mb=100": {"bucket_cap_mb": 100},
        "comm_hook='fp16_compress_hook'": {"comm_hook": "fp16_compress_hook"},
    }
    entrant = _in_place(found.candidates["bucket_cap_mb=5"])
    assert entrant["settings"] == [[FOUND_AT, {"bucket_cap_mb": 5}]]
    assert hasattr(find_named(FOUND_AT), "in_place")
    first, *_ = of_ranks()
    Path("train.py").write_text(DDP + "#\n")  # changed meanwhile
    assert _wrapping(first) is None


def test_of_the_patches_of_the_call_the_best_goes_on_in_one_patch_with_what_else_pays() -> None:
    found = running({"static_graph=True": (20, DECIDED, FASTER), "bucket_cap_mb=5": (20, DECIDED, (0.9, 0.85, 0.95))})
    fix = FUSED.fix.edits[0]
    shift = len(DDP) - len(TEXT)
    moved = (Edit(Span(fix.span.start + shift, fix.span.end + shift), fix.text),)
    fused = replace(FUSED, before=DDP, fix=replace(FUSED.fix, edits=moved))
    found.candidates[fused.key], found.now[fused.key] = fused, {"update": "foreach"}
    found.raced.entrants[fused.key] = Seen(20, DECIDED, FASTER)
    (only,) = found.survivors()
    assert only.key == "update='fused', static_graph=True"
    assert only.text == DDP.replace("(net)", "(net, static_graph=True)").replace(
        "(parameters)", "(parameters, fused=True)"
    )
    assert only.now["static_graph"] is False


@pytest.mark.parametrize("key", ["static_graph=True", "gradient_as_bucket_view=True"])
def test_what_a_race_of_some_steps_cannot_promise_is_not_safe_in_a_patch_of_what_pays_either(key: str) -> None:
    (only,) = running({key: (20, DECIDED, FASTER)}).survivors()
    assert (only.fix.safety, only.fix.changes) == ("unsafe", ())


def test_fresh_sets_race_what_the_running_set_could_not_tell() -> None:
    of_call = of_ranks("rounding")
    found = running(
        {
            "gradient_as_bucket_view=True": (8, FUTILE, None),
            "static_graph=True": (20, DECIDED, SLOWER),
            "bucket_cap_mb=5": (8, "", None),  # looks faster, and time was over
        }
    )
    both = "gradient_as_bucket_view=True, static_graph=True"
    found.raced.refused[both] = "the wrapped model is compiled"
    assert [each.key for each in found.undecided_candidates(of_call)] == [both, "bucket_cap_mb=100", "bucket_cap_mb=5"]
    assert f"{both} raced in fresh sets only: the wrapped model is compiled" in found.notes()
    found.raced.refused[both] = "with it, a step raises ValueError: no on rank 1"
    assert both not in [each.key for each in found.undecided_candidates(of_call)]
    assert f"{both} left the running set: {found.raced.refused[both]}" in found.notes()


@pytest.mark.parametrize(("quads", "is_left"), [(8, True), (2, False)])
def test_what_looks_no_faster_when_time_is_over_is_left_where_it_had_some_quads(quads: int, is_left: bool) -> None:
    found = running({"bucket_cap_mb=5": (quads, "", None)}, ratio=1.02)
    assert ("bucket_cap_mb=5" not in [each.key for each in found.undecided_candidates(of_ranks("rounding"))]) == is_left


def test_beside_what_pays_nothing_is_raced_that_the_running_set_could_not_tell() -> None:
    found = running({"static_graph=True": (20, DECIDED, FASTER), "bucket_cap_mb=5": (8, "", None)})
    assert [each.key for each in found.survivors()] == ["static_graph=True"]
    assert [each.key for each in found.undecided_candidates(of_ranks("rounding"))] == [
        "gradient_as_bucket_view=True",  # these had no turn
        "gradient_as_bucket_view=True, static_graph=True",
        "bucket_cap_mb=100",
    ]


def test_of_what_the_running_set_could_not_tell_the_one_that_looks_fastest_comes_first() -> None:
    found = running({"static_graph=True": (8, "", None), "bucket_cap_mb=100": (8, "", None)})
    found.raced.log_ratios["bucket_cap_mb=100"] = [math.log(0.8)] * 8
    assert [each.key for each in found.undecided_candidates(of_ranks("rounding"))][-2:] == [
        "bucket_cap_mb=100",
        "static_graph=True",
    ]


def test_a_running_set_that_is_not_to_be_trusted_leaves_nothing_out() -> None:
    found = running({"static_graph=True": (20, DECIDED, SLOWER)}, control=(0.9, 0.85, 0.95))
    of_call = of_ranks("rounding")
    assert found.undecided_candidates(of_call) == of_call
    assert found.survivors() == []


def test_what_is_beside_a_control_that_is_off_is_raced_in_fresh_sets_as_it_is() -> None:
    """Of what has a control of its own, the running set tells what it is worth."""
    raced = {"static_graph=True": (20, DECIDED, FASTER), "bucket_cap_mb=100": (20, DECIDED, FASTER)}
    found = running(raced)
    found.raced.ways = {"bucket_cap_mb=100": "twin"}
    found.raced.entrants[TWIN_CONTROL] = Seen(20, "", (0.9, 0.85, 0.95))
    keys = [each.key for each in found.undecided_candidates(of_ranks("rounding"))]
    assert "bucket_cap_mb=100" in keys and "static_graph=True" not in keys
    assert [each.key for each in found.survivors()] == ["static_graph=True"]
