"""How the time of a climb is shared out, on paper."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from surveys import profile_of, survey_of

from perfaudit.findings import Fix, Location
from perfaudit.measure.entrants import CONTROL, FUTILE, UNDECIDED
from perfaudit.measure.facts import Script
from perfaudit.measurements import Settings
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.climb_choice import gains_much, tell_offers
from perfaudit.tune.climb_left_out import bring_back, leave_out
from perfaudit.tune.climb_state import Climb, late
from perfaudit.tune.climb_time import (
    asking_words,
    goes_first,
    is_enough,
    pairs_in,
    parts_of,
    quads_in,
    seconds_of_quads,
    seconds_to_check,
    seconds_to_race,
    seconds_to_screen,
    seconds_together,
)
from perfaudit.tune.ladder import ladder_of
from perfaudit.tune.race_results import Seen

SURE, UNSURE = (0.8, 0.75, 0.85), (0.98, 0.9, 1.05)


def candidate(knob: str, settings: Settings | None = None, way: str = "code") -> Candidate:
    settings = settings or {knob: 1}
    place = Location("train.py", 1, 1, 1, 2)
    return Candidate(f"{knob} {settings}", knob, settings, Fix("x", "safe", (), (), "", ""), place, "", way)  # type: ignore[arg-type]


def loader(workers: int) -> Candidate:
    return candidate("dataloader", {"num_workers": workers, "prefetch_factor": 2}, "loader")


def climb(*found: tuple[Candidate, tuple[float, float, float] | None, list[float], str]) -> Climb:
    state = Climb(frozenset(), {each.key: each for each, *_ in found})
    for each, interval, logs, left in found:
        state.alone.entrants[each.key] = Seen(len(logs), left, interval)
        state.alone.log_ratios[each.key] = logs
    return state


def test_a_quad_of_another_loader_takes_as_many_steps_as_its_turns_have() -> None:
    profile = profile_of(survey_of(), seconds_per_step=0.1)
    fusion = candidate("fusion")
    assert seconds_of_quads(profile, [[fusion]]) == pytest.approx(2 * 3 * 0.1)  # and one of the control
    # A step that is not counted, two blocks of four, one of two of the base; and the control's quad.
    assert seconds_of_quads(profile, [[loader(1)]]) == pytest.approx((9 + 2 + 2 + 2) * 0.1)
    assert seconds_of_quads(profile, [[loader(8)]]) == pytest.approx((8 + 16 + 2 + 2 + 2) * 0.1)
    # Where all of it is the base, the loader's turns are in each quad.
    both = [fusion, loader(1)]
    assert quads_in(profile, 8 * (5 * 4 + 4 + 9 + 4 + 9) * 0.1, parts_of(both), both) == pytest.approx(8.0)


def test_steps_are_left_out_behind_a_switch_only_where_workers_stand_still() -> None:
    profile = profile_of(survey_of(loader={"num_workers": 4, "prefetch_factor": 2}), seconds_per_step=0.1)
    fusion = candidate("fusion")
    assert seconds_of_quads(profile, [[fusion]]) == pytest.approx(2 * 3 * 4 * 0.1)  # of the patch and of the control
    # Two steps and two blocks of four, and a block of the base with the four that are left out; four quads of nothing new.
    of_base = 4 + 4
    assert seconds_of_quads(profile, [[fusion], [loader(2)]]) == pytest.approx(
        (2 * (4 + 2 * 4 + of_base) + 2 + 2 * 4 + of_base) * 0.1
    )


def test_blocks_of_whole_rounds_take_as_much_longer() -> None:
    profile = profile_of(survey_of(), seconds_per_step=0.1)
    of_three, patches = replace(profile, period=3), [[candidate("fusion")]]
    assert seconds_of_quads(of_three, patches) == pytest.approx(3 * seconds_of_quads(profile, patches))
    assert pairs_in(of_three, 60.0) == pytest.approx(pairs_in(profile, 60.0) / 3)


def test_time_is_kept_for_racing_together_what_may_pay() -> None:
    """Of what cannot be in place half of the time beside others: these are known together already."""
    profile = profile_of(survey_of(), seconds_per_step=0.1)
    in_halves = climb((candidate("a"), None, [], ""), (candidate("b"), None, [], ""))
    few = climb(*((candidate(name, way="fresh"), None, [], "") for name in "ab"))
    with_loader = climb((candidate("a", way="fresh"), None, [], ""), (loader(2), None, [], ""))
    assert seconds_to_screen(profile, few, 300.0) < seconds_to_screen(profile, in_halves, 300.0)
    assert seconds_to_screen(profile, with_loader, 300.0) < seconds_to_screen(profile, few, 300.0)
    assert seconds_to_screen(profile, with_loader, 300.0) >= 0.4 * 300.0


def test_questions_that_take_longer_than_there_is_are_not_asked_for_little() -> None:
    def words(loading: float, start: float, **given: Any) -> str:
        survey = survey_of(profile={"loading": loading, "forward": 1.0 - loading}, **given)
        return asking_words(profile_of(survey, seconds_to_open=start), "dataloader", 19.0)

    said = words(0.04, 49.0, script=Script())
    assert "need 2 more starts of the script (49 s each), and it works on about 4 % of the step" in said
    assert words(0.4, 49.0, script=Script()) == words(0.04, 9.0, script=Script()) == words(0.04, 49.0) == ""


def test_the_last_candidate_is_raced_however_short_the_time_is() -> None:
    profile = profile_of(survey_of(profile={"forward": 0.09, "optimizer": 0.01}), seconds_per_step=0.1)
    for last in (replace(candidate("precision"), lacks=("precision",)), candidate("optimizer")):
        state = climb((last, None, [], ""))
        leave_out(profile, state, 1.0)
        assert list(state.candidates) == [last.key]


def test_where_all_would_be_raced_too_briefly_fewer_are_raced() -> None:
    """Settings of one knob first, loading in the step itself before the others; knobs that could gain less after them."""
    profile = profile_of(survey_of(profile={"loading": 0.05, "forward": 0.03, "optimizer": 0.02}), seconds_per_step=1.0)
    names = ["fusion", "optimizer 1", "optimizer 2", "dataloader 0", "dataloader 2"]
    optimizers = [candidate("optimizer", {"optimizer": number}, "fresh") for number in (1, 2)]
    found = [candidate("fusion", way="fresh"), *optimizers, loader(0), loader(2)]
    for most, kept in ((1000.0, names), (125.0, ["fusion", "optimizer 2", "dataloader 2"]), (33.0, ["dataloader 2"])):
        state = climb(*((each, None, [], "") for each in found))
        leave_out(profile, state, 10.0, most)
        shown = [n for n, each in zip(names, found, strict=True) if each.key in state.candidates]
        assert shown == kept, most


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [
        (200.0, ["fusion 1", "optimizer 1", "dataloader 0", "dataloader 2"]),
        (11.0, ["fusion 1", "optimizer 1", "dataloader 2"]),
        (4.0, ["fusion 1", "optimizer 1"]),
        (1.0, ["fusion 1", "optimizer 1"]),  # with one of them, nothing would come sooner
    ],
)
def test_what_is_raced_in_halves_takes_little_time_from_loaders_and_stays(seconds: float, kept: list[str]) -> None:
    """Ten pairs are twenty steps of a tenth of a second."""
    profile = profile_of(survey_of(profile={"loading": 0.02, "forward": 0.03, "optimizer": 0.05}), seconds_per_step=0.1)
    found = [candidate("fusion"), candidate("optimizer"), loader(0), loader(2)]
    state = climb(*((each, None, [], "") for each in found))
    leave_out(profile, state, seconds, seconds)
    assert [f"{each.knob} {next(iter(each.settings.values()))}" for each in state.candidates.values()] == kept


def test_of_those_in_halves_as_many_stay_as_the_pairs_can_tell_apart() -> None:
    """Thirteen pairs are enough for three patches and the control: twice as many, and four more."""
    profile = profile_of(survey_of(), seconds_per_step=0.1)
    names = ("fusion", "optimizer", "zero_grad", "attention", "cudnn")
    state = climb(*((candidate(name), None, [], "") for name in names))
    leave_out(profile, state, 2.6, 2.6)
    assert len(state.candidates) == 3


@pytest.mark.parametrize(("loading", "seconds", "stays"), [(0.07, 6.5, True), (0.07, 5.0, False), (0.03, 6.5, False)])
def test_another_loader_is_raced_first_where_most_of_the_step_is_loading(
    loading: float, seconds: float, stays: bool
) -> None:
    """Five of its quads take 60 steps; with a round of pairs for each of them they would take 100."""
    survey = survey_of(profile={"loading": loading, "forward": 0.1 - loading})
    profile = profile_of(survey, seconds_per_step=0.1)
    found = [candidate("fusion"), candidate("optimizer"), candidate("threads"), loader(2)]
    assert [goes_first(profile, each) for each in found] == [False, False, False, loading > 0.05]
    state = climb(*((each, None, [], "") for each in found))
    leave_out(profile, state, seconds, seconds)
    assert ("dataloader" in {each.knob for each in state.candidates.values()}) is stays
    assert {"fusion", "optimizer", "threads"} <= {each.knob for each in state.candidates.values()}


@pytest.mark.parametrize(("loading", "kept"), [(0.07, "dataloader"), (0.003, "memory_format")])
def test_where_one_can_be_raced_it_is_the_one_that_usually_gains_most_here(loading: float, kept: str) -> None:
    """A knob of which no profile tells what it could gain is not raced before a loader that most of the step waits for."""
    survey = survey_of(profile={"loading": loading, "forward": 0.1 - loading})
    others = [candidate(name, way="fresh") for name in ("threads", "memory_format")]
    state = climb(*((each, None, [], "") for each in (others[0], loader(2), others[1])))
    leave_out(profile_of(survey, seconds_per_step=0.1), state, 3.0, 3.0)
    assert [each.knob for each in state.candidates.values()] == [kept]


@pytest.mark.parametrize(
    ("refused", "seconds", "start", "raced"),
    [
        (True, 40.0, 0.0, ["fusion", "optimizer", "optimizer"]),
        (True, 1.7, 0.0, ["fusion", "optimizer"]),  # eight pairs of blocks and a half
        (True, 3.6, 0.0, ["fusion", "optimizer", "optimizer"]),  # two settings of one knob, in turn
        (False, 20.0, 0.0, ["fusion"]),  # it is raced, or was decided
        (True, 20.0, 18.5, ["fusion"]),  # to start the script again takes the time
        (True, 1.0, 0.0, ["fusion"]),  # what is known of it stays said
    ],
)
def test_what_was_left_out_comes_back_where_each_of_the_others_is_out(
    refused: bool, seconds: float, start: float, raced: list[str]
) -> None:
    survey = survey_of(profile={"forward": 0.07, "optimizer": 0.002, "loading": 0.028}, script=Script())
    profile = profile_of(survey, seconds_per_step=0.1, seconds_to_open=start)
    optimizers = [candidate("optimizer", {"optimizer": number}) for number in (1, 2)]
    found = [candidate("fusion"), *optimizers, replace(loader(2), lacks=("rng",))]
    state = climb((found[0], None, [], ""))
    listed = {each.key: each for each in found}
    state.left = {"optimizer": "not measured, for want of time", "dataloader": "not measured", "compile": "not reached"}
    state.late = {*state.left}
    state.alone.refused = {found[0].key: "with it, a step raises ValueError"} if refused else {}
    comes_back = bring_back(profile, state, listed, seconds)
    assert [each.knob for each in state.candidates.values()] == raced
    assert comes_back == (len(raced) > 1)
    still_left = {"dataloader", "compile", *({"optimizer"} - {*raced})}
    assert {*state.left} == state.late == still_left


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [
        (54.0, ["optimizer 1", "precision 1", "dataloader 1", "dataloader 2"]),
        (34.0, ["optimizer 1", "precision 1", "dataloader 2"]),  # one setting tells of most that its knob would gain
        (24.0, ["optimizer 1", "dataloader 2"]),  # the step waits for data: more is missed without it
        (10.0, ["optimizer 1"]),
    ],
)
def test_where_time_is_short_that_is_left_out_first_which_is_not_allowed_and_missed_least(
    seconds: float, kept: list[str]
) -> None:
    survey = survey_of(profile={"loading": 0.05, "forward": 0.02, "optimizer": 0.03})
    offered = [(candidate("precision"), "precision"), (loader(1), "rng"), (loader(2), "rng")]
    found = [candidate("optimizer"), *(replace(each, lacks=(lacks,)) for each, lacks in offered)]
    state = climb(*((each, None, [], "") for each in found))
    leave_out(profile_of(survey, seconds_per_step=0.1), state, seconds)
    assert [f"{c.knob} {next(iter(c.settings.values()))}" for c in state.candidates.values()] == kept
    gone = {"precision", "dataloader"} - {name.split()[0] for name in kept}
    assert set(state.left) == state.late == gone
    assert all("not measured, for want of time; it changes" in said for said in state.left.values())


@pytest.mark.parametrize(("seconds", "kept"), [(45.0, [1, 2, 3]), (33.0, [2, 3]), (17.0, [3]), (1.0, [3])])
def test_loaders_that_cannot_all_come_to_a_look_are_fewer(seconds: float, kept: list[int]) -> None:
    """A round has a quad of each loader (15, 16 and 17 steps) and of the control; eight rounds are a look."""
    profile = profile_of(survey_of(profile={"loading": 1.0}), seconds_per_step=0.1)
    state = climb(*((loader(workers), None, [], "") for workers in (1, 2, 3)))
    leave_out(profile, state, seconds)
    assert [each.settings["num_workers"] for each in state.candidates.values()] == kept


@pytest.mark.parametrize(
    ("optimizer", "kept"),
    [(0.03, ["optimizer", "dataloader"]), (0.001, ["dataloader"])],
    ids=["some of it", "next to nothing"],
)
def test_what_most_of_the_step_goes_to_is_raced_before_what_next_to_nothing_goes_to(
    optimizer: float, kept: list[str]
) -> None:
    """Whoever may not have the patch learns what it would gain; a hundredth of the step would stay undecided."""
    survey = survey_of(profile={"loading": 0.07, "forward": 0.03 - optimizer, "optimizer": optimizer})
    offer = replace(loader(2), lacks=("rng",))
    state = climb((candidate("optimizer", way="fresh"), None, [], ""), (offer, None, [], ""))
    leave_out(profile_of(survey, seconds_per_step=0.1), state, 10.0)
    assert [each.knob for each in state.candidates.values()] == kept
    assert ("could gain 1 % of the step at most" in state.left.get("optimizer", "")) is (len(kept) == 1)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([(loader(2), UNSURE, [0.0] * 8, "")], True),  # one more setting of a knob, which looks no better
        ([(loader(2), UNSURE, [-0.5] * 8, "")], False),  # it may be better than the one that pays
        ([(loader(2), None, [-0.1] * 4, "")], False),  # too early to say
        ([(candidate("a"), UNSURE, [0.0] * 8, "")], False),  # another knob
        ([(candidate("a"), UNSURE, [0.0] * 8, "looked no faster")], True),
    ],
)
def test_a_race_is_enough_when_each_knob_has_what_pays_or_nothing_open(
    others: list[tuple[Candidate, tuple[float, float, float] | None, list[float], str]], expected: bool
) -> None:
    assert is_enough(climb((loader(1), SURE, [-0.2] * 8, "decided"), *others)) is expected


def test_what_was_given_up_as_no_faster_is_not_undecided() -> None:
    """However wide its interval is: time was left, and more of it would not be spent on it."""
    wide = (1.18, 0.62, 2.26)
    assert climb((candidate("fusion"), wide, [0.2] * 8, FUTILE)).undecided_candidates == []
    assert [each.knob for each in climb((candidate("fusion"), wide, [0.2] * 8, "")).undecided_candidates] == ["fusion"]


def test_what_had_its_last_look_is_no_matter_of_time() -> None:
    """A setting of the same knob that is open is."""
    near, settings = (0.99, 0.97, 1.01), [candidate("optimizer", {"update": each}) for each in ("fused", "foreach")]
    raced = [(settings[0], near, [0.0] * 64, UNDECIDED), (settings[1], (1.0, 0.98, 1.02), [0.0] * 64, UNDECIDED)]
    found = climb(*raced)
    said = "its effect is smaller than this race can show, however long it is"
    assert (found.undecided_candidates, late(found)) == ([], [])
    (left,) = ladder_of(found).left
    assert (left.reason, left.late) == (f"{said}: update=fused took 0.990 [0.970, 1.010] of your step", False)
    found = climb(raced[0], (settings[1], (1.0, 0.98, 1.02), [0.0] * 9, ""))
    assert (found.undecided_candidates, ladder_of(found).left) == ([settings[1]], ())


MUST = "for a patch it must save 1 % for certain, which the whole race did not show"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (  # 0.990 of the step, and not 1 % saved
            (0.879, 0.781, 0.9904),
            f"it is faster, and saves between 0.9 and 22 %; {MUST}: update=fused took 0.879 [0.781, 0.990] of your step; run it "
            "again on a calmer machine",
        ),
        (
            (0.985, 0.976, 0.995),
            f"it is faster, and saves between 0.5 and 2 %; {MUST}: update=fused took 0.985 [0.976, 0.995] of your step",
        ),
        (
            (0.879, 0.781, 1.01),
            "it looked faster, but the whole race did not show that it gains 1 %: update=fused took 0.879 "
            "[0.781, 1.010] of your step; run it again on a calmer machine",
        ),
    ],
)  # fmt: skip
def test_what_looked_faster_at_its_last_look_is_not_called_too_small_to_be_seen(
    seen: tuple[float, float, float], words: str
) -> None:
    fused = candidate("optimizer", {"update": "fused"})
    (left,) = ladder_of(climb((fused, seen, [-0.1] * 1024, UNDECIDED))).left
    assert left.reason == words


def test_nothing_is_enough_before_a_race() -> None:
    assert not is_enough(Climb(frozenset()))


def test_what_was_not_shown_to_gain_anything_is_not_to_be_allowed() -> None:
    offer = replace(candidate("precision"), lacks=("precision",))
    state = climb((offer, UNSURE, [0.0] * 8, ""))
    tell_offers(state)
    assert state.left == {"precision": f"{offer.words}: was not shown to gain anything"}
    state = climb((offer, SURE, [-0.2] * 8, "decided"))
    tell_offers(state)
    assert state.left["precision"].endswith("; it changes precision: --allow precision")


def test_an_offer_that_is_far_slower_was_not_measured_too_briefly() -> None:
    offer = replace(candidate("precision"), lacks=("precision",))
    state = climb((offer, None, [], "22 times as slow in its first steps"))
    tell_offers(state)
    assert state.left == {"precision": f"{offer.words}: 22 times as slow in its first steps"}
    state = climb((offer, None, [-0.1], ""))
    tell_offers(state)
    assert state.left["precision"].startswith("measured too briefly to say what it would gain; it changes precision")


@pytest.mark.parametrize(("left", "keeps"), [(39.0, True), (25.0, False), (200.0, True)])
def test_what_saves_much_is_raced_together_in_what_the_final_race_leaves(left: float, keeps: bool) -> None:
    """39 s have room for a few quads of the loader beside another patch; 25 s have none with a final race behind them."""
    profile = profile_of(survey_of(), seconds_per_step=0.1)
    fusion = candidate("fusion")
    state = climb((loader(2), SURE, [-0.2] * 8, ""), (fusion, SURE, [-0.2] * 8, ""))
    to_race, to_check = seconds_to_race(profile, [loader(2)]), seconds_to_check(profile)
    found = seconds_together(profile, state, left, gains_much=True)
    assert found == pytest.approx(left - to_check - (to_race if keeps else 0.0))
    assert seconds_together(profile, state, 39.0) == pytest.approx(39.0 - to_check)  # else it gives way there


@pytest.mark.parametrize(("ratio", "gives_way"), [(0.97, True), (0.9, False)])
def test_what_saves_much_is_not_raced_together_where_the_final_race_has_just_its_time(
    ratio: float, gives_way: bool
) -> None:
    """Unless another patch, not told yet, looks as if it saved some percent more."""
    profile = profile_of(survey_of(), seconds_per_step=0.1)
    open_one = (candidate("compile"), None, [math.log(ratio)] * 8, "")
    state = climb((loader(2), SURE, [-0.2] * 8, ""), (candidate("fusion"), SURE, [-0.2] * 8, ""), open_one)
    left = seconds_to_check(profile) + seconds_to_race(profile, [loader(2)]) + 1.0
    expected = 0.0 if gives_way else left - seconds_to_check(profile)
    assert seconds_together(profile, state, left, gains_much=True) == pytest.approx(expected)


def test_a_race_of_another_loader_takes_as_much_longer_as_its_ready_batches_take() -> None:
    """Two workers with two batches each have four ready: in twelve blocks that makes 48 steps."""
    profile = profile_of(survey_of(), seconds_per_step=0.1)
    plain = seconds_to_race(profile, [candidate("fusion"), loader(0)])
    assert plain == seconds_to_race(profile)
    assert seconds_to_race(profile, [candidate("fusion"), loader(1), loader(2)]) == pytest.approx(plain + 4.8)


@pytest.mark.parametrize(("sure", "control", "is_much"), [(0.7, True, True), (0.8, True, False), (0.7, False, False)])
def test_much_is_a_quarter_of_the_step_beside_a_control_with_an_interval(
    sure: float, control: bool, is_much: bool
) -> None:
    state = climb((candidate("fusion"), (sure, sure - 0.01, sure + 0.01), [math.log(sure)] * 8, ""))
    state.alone.entrants[CONTROL] = Seen(8, "", (1.0, 0.99, 1.01) if control else None)
    assert gains_much(state) is is_much
