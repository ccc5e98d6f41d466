"""What a climb has come to, from what was raced: whose figure it is, how many rounds, and why nothing is handed over."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from surveys import profile_of, survey_of

from perfaudit.findings import Edit, Fix, Location, Span
from perfaudit.measure.entrants import CONTROL, TWIN_CONTROL
from perfaudit.measure.ledger import Block, Generation, Ledger, Variant
from perfaudit.measure.runner import ENDS_EARLY
from perfaudit.measurements import UNCHECKED, Interval, TwinControl
from perfaudit.tune.candidates import PATCH, Candidate, screened_comparisons
from perfaudit.tune.climb_state import ALL, Climb, late
from perfaudit.tune.climb_together import keep_what_is_known
from perfaudit.tune.ladder import FAILED, NOT_CONFIRMED, ladder_of, start_words, winners_of
from perfaudit.tune.patched_source import SourceRace
from perfaudit.tune.race_results import Raced, Seen, doubt_of
from perfaudit.tune.screening import calibration_of

TEXT = "a = 0\nb = 0\n"
START, TOP = (Variant(key, "climb", {"patch": key}) for key in ("as it is", "all"))
GAIN: Interval = (0.7, 0.68, 0.72)


def rung(key: str, at: int) -> Candidate:
    fix = Fix(f"turn {key} on", "safe", (), (Edit(Span(at, at + 1), "1"),))
    return Candidate(key, key, {key: 1}, fix, Location("t.py", 1, 1, 1, 1), TEXT, "code")


A, B = rung("a", 4), rung("b", 10)


def raced(control: Interval, **intervals: Interval) -> Raced:
    seen = {key.replace("_", " "): Seen(40, "decided", interval) for key, interval in intervals.items()}
    found = Raced({CONTROL: Seen(40, "", control), **seen})
    found.base = {"steps": 10, "wall": 1.0, "cpu": 1.0, "queued": 0.0, "phases": {}}
    return found


def climb_of(
    alone: Raced, beside: Raced | None = None, ratios: tuple[float, ...] = (), says: str = "the losses agree"
) -> Climb:
    """A climb with a final race of as many generations as there are ratios of its steps, two rounds each."""
    rungs = [candidate for candidate in (A, B) if candidate.key in alone.entrants]
    state = Climb(frozenset(), {candidate.key: candidate for candidate in rungs}, alone, rungs=rungs)
    state.beside, state.parts = beside or Raced(), {ALL: list(rungs)}
    state.originals = {"t.py": (TEXT, "utf-8")}
    ledger = Ledger(checked={TOP.key: says})
    for ratio in ratios:
        blocks = [{START.key: (Block(4, 4.0, 4.0, 4),), TOP.key: (Block(4, 4.0 * ratio, 4.0, 4),)} for _ in range(2)]
        ledger.generations.append(Generation("final", blocks))
    state.final = SourceRace(START, (TOP,), {}, "final", ledger)
    return state


RIGHT: Interval = (1.0, 0.99, 1.01)


def test_before_its_interval_a_candidate_has_the_middle_of_its_pairs_and_none_before_these() -> None:
    found = raced(RIGHT)
    found.entrants |= {"a": Seen(3, ""), "b": Seen(0, "")}
    found.log_ratios |= {"a": [-0.5, -0.1, 0.0], "b": []}
    a, b = screened_comparisons({"a": A, "b": B}, found)
    assert (a.ratio, a.has_ratio, b.has_ratio) == (pytest.approx(math.exp(-0.1)), True, False)


def test_a_final_race_that_has_decided_is_what_counts() -> None:
    found = ladder_of(climb_of(raced(RIGHT, a=(0.5, 0.49, 0.51)), ratios=(0.7, 0.71, 0.69, 0.7)))
    assert (found.basis, found.ratio, found.rounds, found.trouble) == ("measured", pytest.approx(0.7, rel=1e-3), 8, "")
    assert found.screened == (0.5, 0.49, 0.51)


@pytest.mark.parametrize(
    ("ratios", "rounds"),
    [
        ((), 0),
        ((0.6, 1.4, 0.5, 1.5), 8),  # it says nothing, but it was made
    ],
)
def test_the_figure_of_the_screening_stands_with_the_rounds_of_the_final_race(
    ratios: tuple[float, ...], rounds: int
) -> None:
    found = ladder_of(climb_of(raced(RIGHT, a=GAIN), ratios=ratios))
    assert (found.basis, found.ratio, found.low, found.high) == ("screened", *GAIN)
    assert (found.rounds, found.trouble) == (rounds, "")
    assert (found.seconds_per_step, found.patched_seconds_per_step) == (pytest.approx(0.1), pytest.approx(0.07))
    assert [item.path for item in found.files] == ["t.py"]


@pytest.mark.parametrize(
    ("why", "says", "trouble"),
    [
        (f"{ENDS_EARLY}ValueError: no", "the losses agree", ""),
        (f"{ENDS_EARLY}ValueError: no", "", f"{FAILED}{ENDS_EARLY}ValueError: no"),  # not checked
        ("more than the promised change", "the losses agree", f"{FAILED}more than the promised change"),
    ],
)
def test_a_script_that_ends_behind_the_check_has_the_figure_of_the_screening(why: str, says: str, trouble: str) -> None:
    state = climb_of(raced(RIGHT, a=GAIN), says=says)
    assert state.final is not None
    state.final.ledger.failures |= {START.key: why, TOP.key: why}
    found = ladder_of(state)
    assert (found.basis, found.trouble, bool(found.files)) == ("screened", trouble, not trouble)


NOISE = (0.93, 1.03)


@pytest.mark.parametrize(
    ("ratios", "basis", "trouble"),
    [
        # It is undecided, and not as fast as was screened.
        ([0.98 * noise for noise in NOISE * 2], "measured", NOT_CONFIRMED),
        ([0.71 * noise for noise in (0.6, 1.6) * 2], "screened", ""),  # undecided, and of the same middle
        ([0.6 * noise for noise in (0.5, 1.9) * 2], "screened", ""),  # it looks even faster
        ([0.71 * noise for noise in (0.9, 1.1) * 6], "measured", ""),  # the last look decides
        ([0.71 * noise for noise in (0.3, 3.0) * 6], "measured", NOT_CONFIRMED),
    ],
)
def test_a_final_race_that_is_open_must_agree_with_the_screening_and_one_at_its_last_look_decides(
    ratios: list[float], basis: str, trouble: str
) -> None:
    found = ladder_of(climb_of(raced(RIGHT, a=GAIN), ratios=tuple(ratios)))
    assert (found.basis, found.trouble, bool(found.files)) == (basis, trouble, not trouble)


@pytest.mark.parametrize(
    ("seconds", "ratios", "said"),
    [
        (4.0, (), []),
        (9.0, (), ["each start of the script takes 9 s: there was no time left for a race of fresh "
                   "processes"]),
        (9.0, (0.7,), ["each start of the script takes 9 s: of the race of fresh processes there was time for 1 of 4 pairs"]),
        (9.0, (0.7,) * 4, ["each start of the script takes 9 s, and the race of fresh processes made 8 of them"]),
    ],
)  # fmt: skip
def test_what_slow_starts_cost_is_told(seconds: float, ratios: tuple[float, ...], said: list[str]) -> None:
    assert start_words(climb_of(raced(RIGHT, a=GAIN), ratios=ratios), seconds) == said


def test_what_a_check_costs_for_which_there_was_no_time() -> None:
    state = climb_of(raced(RIGHT, a=GAIN))
    state.dropped, state.rungs = [(rung, UNCHECKED) for rung in state.rungs], []
    said = "each start of the script takes 37 s, and the check of a patch has 2 of them: give --budget some 81 s more"
    assert start_words(state, 37.0) == [said]


def test_ends_that_barely_touch_are_no_agreement() -> None:
    """Measured 0.98 [0.93, 1.03] is not 0.90 [0.85, 0.94], screened."""
    found = ladder_of(climb_of(raced(RIGHT, a=(0.9, 0.85, 0.94)), ratios=(0.94, 1.02, 0.95, 1.01)))
    assert found.low < 0.94 < found.high
    assert (found.basis, found.trouble) == ("measured", NOT_CONFIRMED)


def test_a_refused_patch_is_no_fix_of_a_winner() -> None:
    for says, is_handed_over in (("the losses agree", True), ("not compared: they are not finite", False)):
        state = climb_of(raced(RIGHT, a=GAIN), says=says)
        state.rungs = [replace(A, knob=PATCH)]
        state.candidates = {}
        found = ladder_of(state)
        (winner,) = winners_of(state, found)
        assert (bool(found.files), winner.fix is not None) == (is_handed_over, is_handed_over)


def test_a_screened_figure_says_where_a_twin_had_a_part_in_it() -> None:
    alone, ways = raced(RIGHT, a=GAIN, b=GAIN), {CONTROL: "control", "a": "code", "b": "twin"}
    for put, has_twin in ((ways, True), ({**ways, "b": "setting"}, False)):
        alone.ways = put
        state = climb_of(alone, raced(RIGHT, **TOGETHER))
        assert ladder_of(state).has_twin == has_twin
        state.beside.ways = {ALL: "twin"}
        assert ladder_of(state).has_twin
        assert not ladder_of(climb_of(alone, ratios=(0.7, 0.71, 0.69, 0.7))).has_twin  # it was measured


FAST: Interval = (0.95, 0.93, 0.97)
FAR: Interval = (0.71, 0.7, 0.73)  # identical code looks as fast as the patch
TOGETHER = {"base": (0.5, 0.48, 0.52), "without_a": (0.6, 0.58, 0.62), "without_b": (0.8, 0.78, 0.82)}


def doubted(control: Interval) -> str:
    ratio, low, high = control
    return (
        "not handed over: it was raced in one training only, and there the control, which is identical code, came out at "
        f"{ratio:.3f} [{low:.3f}, {high:.3f}] in place of 1"
    )


@pytest.mark.parametrize(
    ("alone", "beside", "trouble"),
    [
        (RIGHT, None, ""),
        (FAST, None, ""),  # the patch is faster by far more
        (FAR, None, doubted(FAR)),
        ((0.8, 0.72, 0.9), None, doubted((0.8, 0.72, 0.9))),  # the ends touch
        ((0.8, 0.721, 0.9), None, ""),
        ((1.05, 1.001, 1.1), None, ""),
        ((1.5, 1.4, 1.6), None, doubted((1.5, 1.4, 1.6))),  # identical code was off by as much the other way
        (RIGHT, RIGHT, ""),
        (RIGHT, FAST, ""),
        (RIGHT, (0.5, 0.4, 0.6), doubted((0.5, 0.4, 0.6))),  # what all of it saves together is of this race
        (FAST, RIGHT, ""),
        ((0.5, 0.4, 0.6), RIGHT, ""),  # it chose what was put together; the figure of that is of the other race
    ],
)
def test_what_was_only_screened_must_lie_below_what_identical_code_came_out_at(
    alone: Interval, beside: Interval | None, trouble: str
) -> None:
    if beside is None:
        state = climb_of(raced(alone, a=GAIN))
    else:
        state = climb_of(raced(alone, a=GAIN, b=GAIN), raced(beside, **TOGETHER))
    found = ladder_of(state)
    assert (found.basis, found.trouble, bool(found.files)) == ("screened", trouble, not trouble)


@pytest.mark.parametrize(
    ("usual", "is_told"),
    [
        ([0.5, 0.5], True),  # half of the time is in rollouts
        ([0.7, 0.6], False),
        ([0.5, 1.0], False),  # steps were long because others held the cores
        ([], False),  # of an earlier version
    ],
)
def test_what_was_only_screened_is_no_figure_of_a_training_with_long_steps(usual: list[float], is_told: bool) -> None:
    found = raced(RIGHT, a=GAIN)
    found.base = {"steps": 10, "counted": 10.0, "cpu": 10.0, "usual": usual}
    ladder = ladder_of(climb_of(found))
    assert bool(ladder.files) is not is_told
    assert ("50 % of the time lies in a few long steps" in ladder.trouble) is is_told


def test_long_steps_of_all_that_was_raced_count_where_the_base_had_none() -> None:
    found = raced(RIGHT, a=GAIN)
    found.base = {"steps": 10, "counted": 10.0, "cpu": 10.0, "usual": [1.0, 1.0], "long": 0.6}
    assert "60 % of the time lies in a few long steps" in ladder_of(climb_of(found)).trouble


def test_each_patch_must_lie_below_a_control_of_a_race_that_shows_it() -> None:
    """Alone, b is not faster than identical code was; all of it is, and so is b where it was raced beside a."""
    alone = raced(FAST, a=GAIN, b=(0.92, 0.9, 0.94))
    beside = {"base": (0.5, 0.48, 0.52), "without_a": (0.6, 0.58, 0.62), "without_b": (0.9, 0.89, 0.91)}
    assert ladder_of(climb_of(alone, raced(RIGHT, **beside))).trouble == ""
    beside.pop("without_b")
    assert ladder_of(climb_of(alone, raced(RIGHT, **beside))).trouble == doubted(FAST)
    beside["without_b"] = (0.94, 0.92, 0.96)
    assert ladder_of(climb_of(alone, raced(FAST, **beside))).trouble == doubted(FAST)


def test_the_control_of_a_race_that_no_figure_is_of_is_no_doubt() -> None:
    """Of two races of all together the first was off; of one patch alone, that of it with another one, which was left out."""
    state = climb_of(raced(RIGHT, a=GAIN, b=GAIN), raced(RIGHT, **TOGETHER))
    state.beside_before = [raced((0.5, 0.4, 0.6), **TOGETHER)]
    assert ladder_of(state).trouble == ""
    alone = climb_of(raced(RIGHT, a=GAIN))
    alone.beside = raced((0.5, 0.4, 0.6), **TOGETHER)
    assert (ladder_of(alone).trouble, bool(ladder_of(alone).files)) == ("", True)


@pytest.mark.parametrize(
    ("control", "former", "why"),
    [
        (Seen(8, "", RIGHT), [], ""),
        (Seen(5, ""), [Seen(9, "", RIGHT)], ""),  # the process before it had one
        (Seen(4, ""), [], "was timed too briefly for an interval"),
        (None, [], "was timed too briefly for an interval"),
        (Seen(9, "with it, a step raises ValueError: no", RIGHT), [], "left the race: with it, a step raises ValueError: no"),
        (Seen(9, "", RIGHT), [Seen(9, "", FAST), Seen(9, "", RIGHT)], "came out at 0.950 [0.930, 0.970] in place of 1"),
        (Seen(9, "", RIGHT), [Seen(3, "it died", None)], "left the race: it died"),
    ],
)  # fmt: skip
def test_a_race_stands_with_the_controls_of_all_its_processes(
    control: Seen | None, former: list[Seen], why: str
) -> None:
    race = raced(RIGHT, a=GAIN)
    race.entrants.pop(CONTROL)
    race.entrants |= {CONTROL: control} if control is not None else {}
    race.former_controls = [(CONTROL, seen) for seen in former]
    doubt = f"it was raced in one training only, and there the control, which is identical code, {why}" if why else ""
    assert doubt_of(race) == doubt
    assert doubt_of(Raced()) == ""  # a race that was not run says nothing


@pytest.mark.parametrize(
    ("way", "control", "of_twins", "why"),
    [
        ("twin", RIGHT, RIGHT, ""),
        ("twin", RIGHT, None, "was timed too briefly for an interval"),
        ("twin", None, RIGHT, ""),
        ("code", None, RIGHT, "was timed too briefly for an interval"),
        ("code", RIGHT, None, ""),
        ("code", RIGHT, FAST, ""),
        ("code", FAST, RIGHT, "came out at 0.950 [0.930, 0.970] in place of 1"),
        ("twin", RIGHT, FAST, "came out at 0.950 [0.930, 0.970] in place of 1"),
    ],
)
def test_a_figure_stands_with_the_control_of_its_way(
    way: str, control: Interval | None, of_twins: Interval | None, why: str
) -> None:
    race = raced(RIGHT, a=GAIN)
    race.ways = {"a": way}
    race.entrants |= {CONTROL: Seen(9, "", control), TWIN_CONTROL: Seen(9, "", of_twins)}
    assert doubt_of(race).rpartition("which is identical code, ")[2] == why


@pytest.mark.parametrize(
    ("key", "way", "why"),
    [
        (CONTROL, "code", "was timed too briefly for an interval"),
        (CONTROL, "twin", ""),  # of a process in which no halves were left to race
        (TWIN_CONTROL, "twin", ""),
    ],
)
def test_a_figure_of_a_twin_needs_a_former_control_of_twins(key: str, way: str, why: str) -> None:
    race = raced(RIGHT, a=GAIN)
    race.ways = {"a": "twin"}
    race.entrants[TWIN_CONTROL] = Seen(2, "")
    race.former_controls = [(key, Seen(9, "", RIGHT, way=way))]
    assert doubt_of(race).rpartition("which is identical code, ")[2] == why


def test_the_control_of_others_is_no_doubt_of_one_that_is_asked_about() -> None:
    race = raced(RIGHT, a=GAIN, b=GAIN)
    race.ways = {"a": "code", "b": "twin"}
    race.entrants[TWIN_CONTROL] = Seen(9, "", FAST)
    assert [bool(doubt_of(race, keys=[key])) for key in ("a", "b")] == [False, True]
    assert doubt_of(raced(FAST))  # nobody is known yet


def test_the_report_has_the_controls_of_both_ways() -> None:
    race = raced(RIGHT, a=GAIN)
    race.ways, race.in_halves = {CONTROL: "code", TWIN_CONTROL: "twin"}, {"a", CONTROL}
    profile = profile_of(survey_of())
    seen = calibration_of(race, profile)
    assert seen is not None and (seen.control_way, seen.in_halves, seen.of_twins) == ("code", True, None)
    race.entrants[TWIN_CONTROL] = Seen(8, "", FAST)
    seen = calibration_of(race, profile)
    assert seen is not None and seen.of_twins == TwinControl(8, *FAST)
    race.entrants[TWIN_CONTROL] = Seen(2, "")
    seen = calibration_of(race, profile)
    assert seen is not None and seen.of_twins == TwinControl(2)


def test_what_was_measured_in_fresh_processes_stands_whatever_the_control_says() -> None:
    found = ladder_of(climb_of(raced(FAST, a=GAIN), ratios=(0.7, 0.71, 0.69, 0.7)))
    assert (found.basis, found.trouble, len(found.files)) == ("measured", "", 1)


def test_what_more_time_would_tell_is_marked_among_what_was_left() -> None:
    state = climb_of(raced(RIGHT, a=GAIN))
    state.left = {"ema": "there is no average", "compile": "it needs 90 s of measuring and had 7 s"}
    state.late = {"compile"}
    assert [(item.knob, item.late) for item in ladder_of(state).left] == [("ema", False), ("compile", True)]
    assert late(state) == ["compile"]


def test_a_rung_shows_how_it_does_beside_others_only_where_those_are_handed_over_with_it() -> None:
    """One was raced beside the other, and all of it too briefly: the first is handed over alone, and beside nothing."""
    alone = raced(RIGHT, a=(0.7, 0.68, 0.72), b=(0.8, 0.78, 0.82))
    beside = raced(RIGHT, without_a=(0.66, 0.6, 0.7), without_b=(0.9, 0.85, 0.95))
    state = climb_of(alone, beside)
    assert [rung.beside for rung in ladder_of(state).rungs] == [(0.66, 0.6, 0.7), (0.9, 0.85, 0.95)]
    keep_what_is_known(state)
    state.candidates.clear()  # their knobs are none that there are
    found = ladder_of(state)
    assert [(rung.knob, rung.beside) for rung in found.rungs] == [("a", None)]
    assert found.untested == ()
    state = climb_of(alone, beside)
    state.candidates.clear()
    state.rungs.remove(B)
    state.dropped.append((B, "it gains nothing"))
    assert [(rung.knob, rung.beside) for rung in ladder_of(state).rungs] == [("a", None), ("b", (0.9, 0.85, 0.95))]


def test_a_ladder_without_a_ratio_has_no_basis_of_it() -> None:
    state = climb_of(raced(RIGHT, a=GAIN))
    assert (ladder_of(state).basis, ladder_of(state).ratio) == ("screened", GAIN[0])
    state.rungs, state.candidates = [], {}
    assert (ladder_of(state).basis, ladder_of(state).ratio) == (None, None)
