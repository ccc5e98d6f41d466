"""A climb as it is printed: whole texts, for what a reader sees at a glance."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from climbs import CLIMB, CONTROL, FUSED, GELU, GONE, LADDER, RACED, report
from tunes import MACHINE

from perfaudit.measurements import NO_TIME, NOT_REACHED_YET, Comparison, Ladder, NotApplicable, Rung, TwinControl
from perfaudit.render.html import render as page
from perfaudit.render.ladder import SHORT, head_lines, headline, ladder, saving_of_patch, unsure_words
from perfaudit.render.markdown import render as markdown
from perfaudit.render.paint import plain
from perfaudit.render.text import render
from perfaudit.report import to_json

SCREENED_ONLY = replace(LADDER, basis="screened", rounds=0)
RESULT = "100.0 ms -> 70.0 ms a step (1.43 x), 2 patches, verified; 1 undecided, 1 not reached"
NAMED = RESULT.replace("undecided", "undecided (attention)").replace("not reached", "not reached (compile)")
ALLOW = "perfaudit tune train.py --allow rounding,precision"
ALLOWED = (
    "precision would pay (takes 0.62 of the step, screened) and is not allowed: `perfaudit tune train.py --allow "
    "rounding,precision`"
)
NAMES = "undecided: attention; not reached: compile"

TABLE = """\

    patch                                  alone, screened      beside the others      also changes
 ──────────────────────────────────────────────────────────────────────────────────────────────────
 1  build AdamW with fused=True       0.900 [0.880, 0.920]   0.910 [0.895, 0.925]   rounding, order
 (t.py:9)
 2  use F.gelu (t.py:4)               0.800 [0.750, 0.850]              not raced           nothing
 -  search algorithms (t.py:1)        0.950 [0.900, 0.990]   1.002 [0.991, 1.013]         taken out
    all patches together              0.710 [0.690, 0.730]                          rounding, order

Ratios of the time of a step: below 1 is faster. Alone: against your code. Beside the others: all
patches against all but this one. Screened: timed in turn in one running training, before losses
were compared.
"""
FINAL = """\
final race, the patch against your code in fresh processes (12 rounds): 0.700 [0.650, 0.750]; saves
30.00 s [25.00 s, 35.00 s] in a thousand steps; peak memory 4.0 MiB -> 2.0 MiB
"""
PATCH = """\
the patch (changes rounding, order):
  --- a/t.py
  +++ b/t.py
  @@ -1,2 +1,2 @@
  -a = 0
  +a = 1

"""
LEFT = """\
not taken, and why:
  cudnn: taken out again: the others are as fast without it
  batch_size, ema: it changes algorithm
  compile: no time was left for it in the budget
  attention: undecided: more time would decide it
"""
BRIEF = f"""\
{RESULT}
{NAMES}

t.py on NVIDIA H200, driver 570.1, 2 cores, 1 thread, 1.5 GiB, torch 2.13.0, Python 3.11.7, busy (load 1.6)

{TABLE}
{FINAL}
{PATCH}
{LEFT}
note: a note

--verbose adds: phases of a step, control, noise, every candidate that was raced (5), how losses
were compared, why some were not raced beside the others, 1 knob that cannot matter here
"""
VERBOSE = f"""\
{RESULT}
{NAMES}

t.py on NVIDIA H200, driver 570.1, 2 cores, 1 thread, 1.5 GiB, torch 2.13.0, Python 3.11.7
the machine was busy (load 1.6 on 2 cores): intervals are wider for it

{TABLE}
{FINAL}
{PATCH}
{LEFT}
note: a note

a step takes 100.00 ms: loading 50 %, backward 36 %, forward 12 %, optimizer 1 %
control: identical code, put in place as a patch is, took 1.001 [0.993, 1.009] of the time of your
code (160 comparisons)
noise: single comparisons of the control scatter by 2.0 %; a step takes 100.00 ms of processor time,
all threads

raced against your code:

 candidate                       of your step     verdict   compared        put in place   resolves
 ──────────────────────────────────────────────────────────────────────────────────────────────────
 fusion                  0.800 [0.750, 0.850]      faster   32 times        patched code
 pointwise=library
 optimizer               0.900 [0.880, 0.920]      faster   40 times   set between steps
 update=fused
 cudnn                   0.950 [0.900, 0.990]      faster   32 times   set between steps
 benchmark=True
 attention=library       0.980 [0.950, 1.010]   undecided   48 times   a second training      3.1 %
 compile              1.200 [no interval yet]   undecided    1 round            in fresh
 mode=default                                                                  processes

verified: 5 steps agree

not raced beside the others: fusion, because a later patch changes what it wrote, or time or memory
were too short

not searched:
  threads: the step runs on the device
"""


def test_a_climb_leads_with_its_result_and_says_what_else_there_is() -> None:
    assert render(CLIMB) == BRIEF


def test_where_the_run_is_kept_is_one_line_behind_the_notes() -> None:
    text = render(CLIMB.with_(kept_in=".perfaudit/runs/20261130-dfc2.jsonl"), width=140)
    said = ": `perfaudit history 20261130-dfc2` shows it again"
    assert f"note: a note\n\nkept in .perfaudit/runs/20261130-dfc2.jsonl{said}\n\n--verbose adds: " in text


def test_a_patch_is_told_where_no_step_of_the_users_code_was_timed() -> None:
    untimed = report(SCREENED_ONLY.with_(seconds_per_step=None, patched_seconds_per_step=None))
    first = "a step is faster (1.43 x, screened: the final race did not decide), 2 patches, verified"
    assert headline(untimed).partition(";")[0] == first
    for text in (render(untimed, verbose=True), markdown(untimed), page(untimed)):
        assert "a step is faster" in text and " ms" not in text and "0.800 [0.750, 0.850]" in text


def test_what_only_an_expert_asks_for() -> None:
    assert render(CLIMB, verbose=True) == VERBOSE


def test_what_is_in_colour() -> None:
    text = render(CLIMB, in_colour=True)
    assert re.sub("\x1b\\[[0-9;]*m", "", text) == BRIEF
    painted = [line for line in text.splitlines() if line.startswith(("\x1b", "  \x1b"))]
    assert painted[0] == f"\x1b[1m{RESULT}\x1b[0m"
    assert painted[2:9] == [
        "\x1b[36mthe patch (changes rounding, order):\x1b[0m",
        "  \x1b[1m--- a/t.py\x1b[0m",
        "  \x1b[1m+++ b/t.py\x1b[0m",
        "  \x1b[36m@@ -1,2 +1,2 @@\x1b[0m",
        "  \x1b[31m-a = 0\x1b[0m",
        "  \x1b[32m+a = 1\x1b[0m",
        "\x1b[2m--verbose adds: phases of a step, control, noise, every candidate that was raced (5), how losses",
    ]
    assert "\x1b[1m     alone, screened\x1b[0m" in text


def test_a_climb_whose_own_losses_became_no_numbers_says_so_in_its_second_line() -> None:
    note = "the losses have become NaN or infinite: times are of a training that does not learn"
    ends = replace(CLIMB, ladder=LADDER.with_(not_learning=note), notes=(note, "a note"))
    first, second, third = render(ends, width=200).splitlines()[:3]
    assert (first, second, third) == (NAMED.replace("verified", "verified for its first steps only"), note, "")
    assert render(ends, width=200).count(note) == 1 and "note: a note" in render(ends)
    assert "\nchecked: 5 steps agree\n" in render(ends, verbose=True)
    page = markdown(ends)
    assert f"\n\n**{note}**\n\n" in page and page.count(note) == 1 and "\n- a note\n" in page


OPEN = "; 1 undecided, 1 not reached"
LATE = (NotApplicable("a", "it cannot"), NotApplicable("b", NO_TIME, late=True))


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (LADDER, RESULT),
        (LADDER.with_(left=(), undecided=()), "100.0 ms -> 70.0 ms a step (1.43 x), 2 patches, verified"),
        (
            LADDER.with_(basis="screened", rounds=0),
            "100.0 ms -> 70.0 ms a step (1.43 x, screened: the final race did not decide), 2 patches, verified" + OPEN,
        ),
        (
            LADDER.with_(rungs=(GELU,), clock="cpu"),
            "100.0 ms -> 70.0 ms a step (1.43 x in processor time), 1 patch, verified" + OPEN,
        ),
        (
            LADDER.with_(clock="own"),
            "100.0 ms -> 70.0 ms a step (1.43 x, waiting for cores left out), 2 patches, verified" + OPEN,
        ),
        (
            LADDER.with_(clock="own", files=(), trouble="not handed over: it died"),
            f"100.0 ms a step, waiting for cores left out: 2 patches, not handed over: it died{OPEN}",
        ),
        (
            LADDER.with_(verified="the losses of 5 steps are finite; equality is not claimed, because the patch changes order"),
            "100.0 ms -> 70.0 ms a step (1.43 x), 2 patches, ran; losses not comparable" + OPEN,
        ),
        (LADDER.with_(high=0.999), RESULT),
        (
            LADDER.with_(files=(), trouble="not handed over: it died"),
            f"100.0 ms a step: 2 patches, not handed over: it died{OPEN}",
        ),
        (
            LADDER.with_(files=(), ratio=None, seconds_per_step=None, trouble="not handed over: it died"),
            f"2 patches, not handed over: it died{OPEN}",
        ),
        (Ladder(seconds_per_step=2.5), "2.50 s a step: no patch was raced"),
        (Ladder((GONE,), seconds_per_step=0.0042), "4.20 ms a step: no patch was raced"),
        (Ladder(left=LATE), "no patch was raced; 1 not reached"),
        (Ladder(left=LATE, undecided=("b", "c")), "no patch was raced; 2 not reached"),
    ],
)  # fmt: skip
def test_the_first_line_says_no_more_than_was_shown(found: Ladder, line: str) -> None:
    assert headline(report(found)) == line


@pytest.mark.parametrize(
    ("found", "more", "width", "lines"),
    [
        (LADDER, {}, 106, [NAMED]),
        (LADDER, {}, 105, [RESULT, NAMES]),
        (LADDER, {}, 84, [RESULT, NAMES]),
        (LADDER, {}, 80, [RESULT.removesuffix(", 1 not reached"), NAMES]),
        (LADDER, {"interrupted": True}, 80, [RESULT.removesuffix(", 1 not reached"), f"interrupted; {NAMES}"]),
        (
            SCREENED_ONLY, {}, 80,
            [
                "100.0 ms -> 70.0 ms a step (1.43 x, screened), 2 patches, verified; 1 undecided",
                f"screened: the final race did not decide; {NAMES}",
            ],
        ),
        (
            SCREENED_ONLY.with_(clock="own"), {}, 80,
            [
                "100.0 ms -> 70.0 ms a step (1.43 x, screened), 2 patches, verified; 1 undecided",
                f"screened: the final race did not decide; waiting for cores left out; {NAMES}",
            ],
        ),
        (
            LADDER.with_(offered=("precision",), failed=("ema",), left=()), {}, 80,
            [
                "100.0 ms -> 70.0 ms a step (1.43 x), 2 patches, verified; 1 undecided, 1 failed",
                "precision would pay and is not allowed; undecided: attention; failed: ema",
            ],
        ),
        (
            LADDER.with_(offered=("precision",), offered_ratios={"precision": (0.62, 0.58, 0.66)}, allow_command=ALLOW), {}, 99,
            [
                NAMED.partition(" (att")[0] + ", 1 not reached",
                ALLOWED,
                NAMES,
            ],
        ),
        (
            LADDER.with_(
                offered=("precision", "dataloader"), allow_command=ALLOW, left=(), undecided=(),
                offered_ratios={"precision": (0.6, 0.5, 0.7)},
            ),
            {}, 140,
            [
                "100.0 ms -> 70.0 ms a step (1.43 x), 2 patches, verified",
                f"precision (takes 0.60 of the step, screened) and dataloader would pay and are not allowed: `{ALLOW}`",
            ],
        ),
        (
            LADDER.with_(files=(), trouble="not handed over: the final race did not show that it is faster"), {}, 80,
            [
                "100.0 ms a step: 2 patches, not handed over; 1 undecided, 1 not reached",
                f"not handed over: the final race did not show that it is faster; {NAMES}",
            ],
        ),
        (
            LADDER.with_(rungs=(replace(GONE, dropped=NOT_REACHED_YET),), files=(), left=(), undecided=()),
            {"interrupted": True}, 80,
            [
                "100.0 ms a step: 1 patch pays (screened); interrupted",
                "no patch was checked before the interruption",
            ],
        ),
        (LADDER.with_(left=(), undecided=()), {}, 80, [RESULT.partition(";")[0]]),
        (LADDER.with_(left=LATE, undecided=()), {}, 80, [f"{RESULT.partition(';')[0]}; 1 not reached (b)"]),
    ],
)  # fmt: skip
def test_the_result_is_one_line_and_names_stand_below_it_where_they_have_no_room(
    found: Ladder, more: dict[str, Any], width: int, lines: list[str]
) -> None:
    assert head_lines(report(found, comparisons=RACED, **more), width) == lines
    head = render(report(found, comparisons=RACED, **more), width=width).partition("\n\n")[0]
    assert (head.splitlines()[0], " ".join(head.split())) == (lines[0], " ".join(lines))


NARROW = """\
100.0 ms -> 70.0 ms a step (1.43 x), 2 patches, verified; 1 undecided
undecided: attention; not reached: batch_size, compile
"""


def test_where_no_patch_is_left_the_step_has_the_clock_of_the_race_that_timed_it() -> None:
    told = report(Ladder(), calibration=replace(CONTROL, clock="own"))
    assert headline(told) == "100.0 ms a step, waiting for cores left out: no patch was raced"


def test_the_first_lines_on_eighty_columns() -> None:
    late = tuple(NotApplicable(name, NO_TIME, late=True) for name in ("batch_size", "compile"))
    assert render(report(LADDER.with_(left=late), comparisons=RACED), width=80).startswith(NARROW)


def test_what_no_race_has_told_of_is_not_undecided() -> None:
    text = ladder(report(Ladder(undecided=("b", "c"))), plain, 100)[-1]
    assert text == "not taken, and why:\n  b, c: not raced: the race ended before it told anything\n"


def test_a_climb_that_measured_nothing_has_no_basis_in_json() -> None:
    assert to_json(report(Ladder()))["ladder"]["basis"] is None
    assert to_json(report(LADDER))["ladder"]["basis"] == "measured"


def test_one_patch_is_not_called_all_patches() -> None:
    for basis, said in (
        ("measured", "final race, the patch against your code in fresh processes"),
        ("screened", "final race: not decided after 12 rounds; the patch, screened: 0.700"),
    ):
        text = "\n".join(ladder(report(LADDER.with_(rungs=(GELU, GONE), basis=basis)), plain, 200))
        assert said in text and "\nthe patch (changes rounding, order):\n" in text
        assert "all patches together" not in text


@pytest.mark.parametrize(
    ("raced", "said"),
    [
        (0, "no patch was raced"),
        (1, "the one patch that was raced was not shown to pay"),
        (5, "no patch of 5 was shown to pay"),
    ],
)
def test_where_nothing_stayed_it_says_how_many_were_raced(raced: int, said: str) -> None:
    nothing = report(Ladder((GONE,)), calibration=CONTROL, comparisons=RACED[:raced])
    assert headline(nothing) == f"100.0 ms a step: {said}"
    assert headline(nothing.with_(interrupted=True)) == f"100.0 ms a step: {said}; interrupted"


def test_what_was_raced_too_briefly_is_not_said_to_be_without_gain() -> None:
    brief = tuple(replace(compared, low=0.0, high=float("inf")) for compared in RACED[:2])
    said = "2 patches raced too briefly to say anything; 1 undecided"
    assert headline(report(Ladder(undecided=("fusion",)), comparisons=brief)) == said
    given_up = (replace(brief[0], given_up=True), brief[1])
    assert headline(report(Ladder(), comparisons=given_up)) == "no patch of 2 was shown to pay"


def test_a_knob_without_time_is_left_and_is_not_one_that_cannot_matter() -> None:
    text = render(report(Ladder(), not_applicable=(NotApplicable("ema", NO_TIME, late=True),)))
    said = "not taken, and why:\n  ema: no time was left for it in the budget\n"
    assert text == f"no patch was raced; 1 not reached (ema)\n\n{said}"


@pytest.mark.parametrize(
    ("loading", "undecided", "high", "said"),
    [
        (
            0.06, (), 1.09,
            "dataloader: not shown to be faster: num_workers=2 took 1.040 [0.990, 1.090] of your step, of which loading is 60 %",
        ),
        (0.01, (), 1.09, None),  # little of the step
        (0.06, ("dataloader",), 1.09, "dataloader: undecided: more time would decide it"),
        (0.06, (), float("inf"), None),  # no interval tells anything
    ],
)  # fmt: skip
def test_why_a_knob_of_much_of_the_step_is_not_in_the_patch_is_told(
    loading: float, undecided: tuple[str, ...], high: float, said: str | None
) -> None:
    raced = tuple(
        Comparison(
            "dataloader", {"num_workers": 0}, {"num_workers": n}, ratio, 0.99, high, "undecided", 9, basis="screened"
        )
        for n, ratio in ((1, 1.2), (2, 1.04))
    )
    control = replace(CONTROL, phases={"loading": loading, "forward": 0.1 - loading})
    parts = ladder(report(Ladder(undecided=undecided), calibration=control, comparisons=raced), plain, 200)
    assert [part for part in parts if part.startswith("not taken")] == (
        [f"not taken, and why:\n  {said}\n"] if said else []
    )


def test_a_knob_that_is_faster_by_less_than_it_must_is_not_said_to_be_no_faster() -> None:
    raced = Comparison("dataloader", {"num_workers": 0}, {"num_workers": 2}, 0.985, 0.975, 0.995, "faster", 1024)
    control = replace(CONTROL, seconds_per_step=0.1, phases={"loading": 0.06, "forward": 0.04})
    said = (
        "dataloader: faster, but not shown to save as much as a patch must: num_workers=2 took 0.985 [0.975, 0.995] of your "
        "step, of which loading is 60 %\n"
    )
    assert said in render(report(Ladder(), calibration=control, comparisons=(raced,)), width=200)


def test_a_control_without_an_interval_is_no_pair_of_copies() -> None:
    text = render(CLIMB.with_(calibration=replace(CONTROL, low=None, high=None, rounds=1)), verbose=True)
    assert "\ncontrol: identical code, put in place as a patch is: too few comparisons for an interval (1)\n" in text
    assert "two copies" not in text and "cannot be trusted" not in text


def test_a_candidate_without_an_interval_has_no_ratio_where_it_was_screened() -> None:
    started = replace(RACED[3], ratio=1.0, low=0.0, high=float("inf"), n=2)
    text = render(CLIMB.with_(comparisons=(started,)), verbose=True, width=140)
    assert re.search(r"attention=library +no interval yet +undecided +2 times ", text)
    text = render(CLIMB.with_(comparisons=(replace(started, n=0),)), verbose=True, width=140)
    assert re.search(r"attention=library +no ratio yet +undecided +0 times ", text)


def test_a_candidate_of_which_step_and_part_were_compared_counts_once() -> None:
    twice = (RACED[0], replace(RACED[0], of="optimizer"), RACED[1])
    assert headline(report(Ladder(), comparisons=twice)) == "no patch of 2 was shown to pay"


@pytest.mark.parametrize(
    ("why", "line", "whole"),
    [
        ("it died\nTraceback: x", "it died ...", "no patch: it died Traceback: x\n"),
        ("y" * SHORT, "y" * SHORT, ""),
        ("it " * 40, f"{'it ' * 28}...", f"no patch: {'it ' * 39}it\n"),
    ],
)
def test_a_long_reason_is_cut_in_the_first_line_and_whole_below(why: str, line: str, whole: str) -> None:
    found = LADDER.with_(trouble=f"not handed over: {why}", files=(), left=(), undecided=())
    assert headline(report(found)) == f"100.0 ms a step: 2 patches, not handed over: {line}"
    assert [part for part in ladder(report(found), plain, 200) if part.startswith("no patch")] == (
        [whole] if whole else []
    )


@pytest.mark.parametrize(
    ("ratio", "low", "high", "is_doubted"),
    [(1.04, 1.001, 1.06, True), (0.96, 0.94, 0.999, True), (1.04, 1.0, 1.08, False), (0.96, 0.94, 1.0, False)],
)
def test_a_control_that_excludes_one_is_in_the_first_lines(
    ratio: float, low: float, high: float, is_doubted: bool
) -> None:
    control = replace(CONTROL, ratio=ratio, low=low, high=high)
    took = f"{ratio:.3f} [{low:.3f}, {high:.3f}] of the time of your code"
    shown = f"the control, identical code put in place as a patch is, took {took}"
    assert CLIMB.ladder is not None
    for found, doubt in (
        (
            CLIMB.ladder.with_(basis="measured"),
            f"the screened ratios of this run may be off: {shown}. The patch below is handed over because it was measured in "
            "fresh processes",
        ),
        (
            CLIMB.ladder.with_(basis="screened"),
            f"the screened ratios of this run may be off: {shown}. The patch below is handed over because it is faster by more "
            "than that",
        ),
        (
            CLIMB.ladder.with_(files=(), trouble="not handed over: x"),
            f"this run cannot be trusted: {shown}; the ratios of patches may be as far off. Run it again, on a machine that does "
            "nothing else",
        ),
    ):
        _, second, *_ = render(CLIMB.with_(calibration=control, ladder=found), width=400).splitlines()
        assert second == (doubt if is_doubted else "")
        of_twins = replace(CONTROL, of_twins=TwinControl(8, ratio, low, high))
        _, second, *_ = render(CLIMB.with_(calibration=of_twins, ladder=found), width=400).splitlines()
        assert second == (doubt.replace("put in place as a patch is", "in a second training") if is_doubted else "")


@pytest.mark.parametrize(
    ("twins", "said"),
    [
        (TwinControl(8, 1.003, 0.981, 1.024), "in a second training it took 1.003 [0.981, 1.024] (8 comparisons)"),
        (TwinControl(1), "in a second training it was timed too briefly for an interval (1 comparison)"),
    ],
)
def test_the_control_of_second_trainings_stands_beside_that_of_the_others(twins: TwinControl, said: str) -> None:
    text = render(CLIMB.with_(calibration=replace(CONTROL, of_twins=twins)), verbose=True, width=400)
    assert f"took 1.001 [0.993, 1.009] of the time of your code (160 comparisons); {said}\n" in text


def test_a_climb_without_rungs_has_no_table_and_no_patch() -> None:
    assert ladder(report(Ladder()), plain, 100) == []
    assert render(report(Ladder())) == "no patch was raced\n"


def test_a_single_rung_has_no_others_beside_it() -> None:
    table, race, *_ = ladder(report(LADDER.with_(rungs=(GELU,), screened=(0.8, 0.7, 0.9))), plain, 100)
    assert " 1  use F.gelu (t.py:4)   0.800 [0.750, 0.850]                            nothing\n" in table
    assert "not raced" not in table and "all patches together" not in table
    assert race.startswith("final race")


def test_a_rung_that_was_not_screened_says_so() -> None:
    table = ladder(report(LADDER.with_(rungs=(replace(FUSED, basis="measured"), GELU))), plain, 120)[0]
    assert " 0.900 [0.880, 0.920] measured " in table
    assert " 0.800 [0.750, 0.850]  " in table


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "final race, the patch against your code in fresh processes (12 rounds): 0.700 [0.650, 0.750]; saves"),
        (
            {"rounds": 1, "clock": "cpu"},
            "final race, the patch against your code in fresh processes (1 round, processor",
        ),
        (
            {"basis": "screened", "rounds": 0},
            "final race: not decided, no round was finished; the patch, screened: 0.700 [0.650, 0.750]; saves 30.00 s",
        ),
        (
            {"basis": "screened", "rounds": 3},
            "final race: not decided after 3 rounds; the patch, screened: 0.700 [0.650, 0.750]; saves 30.00 s",
        ),
        (
            {"basis": "screened", "rounds": 3, "final_so_far": (0.96, 0.85, 1.08)},
            "final race: not decided after 3 rounds, at 0.960 [0.850, 1.080]; the patch, screened: 0.700 [0.650, 0.750]",
        ),
        (
            {"basis": "screened", "rounds": 1, "final_so_far": (0.96, 0.0, float("inf"))},
            "final race: not decided after 1 round, at 0.960; the patch, screened: 0.700 [0.650, 0.750]",
        ),
        (
            {"basis": "screened", "rounds": 0, "is_chosen_by_it": True},
            "final race: not decided, no round was finished; the patch, screened: 0.700 [0.650, 0.750] (it chose the "
            "patches, too, so they may save less); saves 30.00 s",
        ),
        (
            {"basis": "screened", "rounds": 3, "has_twin": True},
            "final race: not decided after 3 rounds; the patch, screened: 0.700 [0.650, 0.750] (where a second "
            "training lies in memory changes its time too: that is not in the interval); saves 30.00 s",
        ),
    ],
)
def test_the_line_of_the_final_race(changes: dict[str, Any], said: str) -> None:
    assert ladder(report(LADDER.with_(**changes)), plain, 400)[1].startswith(said)


def test_a_race_without_proof_saves_nothing_and_one_without_figures_is_not_told() -> None:
    race = ladder(report(LADDER.with_(high=1.0, peak_memory_bytes=None)), plain, 400)[1]
    assert race == "final race, the patch against your code in fresh processes (12 rounds): 0.700 [0.650, 1.000]\n"
    assert not any("final race" in part for part in ladder(report(LADDER.with_(ratio=None)), plain, 400))
    short = LADDER.with_(low=0.0, high=float("inf"), peak_memory_bytes=None)
    assert ladder(report(short), plain, 400)[1].endswith(" (12 rounds): 0.700 [no interval yet]\n")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (4 << 20, 2 << 20, "; peak memory 4.0 MiB -> 2.0 MiB\n"),
        (4 << 20, (4 << 20) + 1, "[0.650, 1.000]\n"),
        (4 << 20, None, "[0.650, 1.000]\n"),
        (None, 4 << 20, "[0.650, 1.000]\n"),
    ],
)
def test_memory_is_told_where_it_differs(before: int | None, after: int | None, said: str) -> None:
    found = LADDER.with_(high=1.0, peak_memory_bytes=before, patched_peak_memory_bytes=after)
    assert ladder(report(found), plain, 400)[1].endswith(said)


def test_memory_that_workers_take_over_is_no_gain() -> None:
    found = LADDER.with_(high=1.0, peak_memory_bytes=4 << 20, patched_peak_memory_bytes=2 << 20)
    with_workers = found.with_(rungs=(replace(found.rungs[0], knob="dataloader"), *found.rungs[1:]))
    assert "peak memory" in ladder(report(found), plain, 400)[1]
    assert "peak memory" not in ladder(report(with_workers), plain, 400)[1]


def test_a_patch_that_changes_nothing_but_speed() -> None:
    parts = ladder(report(LADDER.with_(changes=())), plain, 100)
    assert (
        "    all patches together              0.710 [0.690, 0.730]                                  nothing\n"
        in parts[0]
    )
    assert parts[2].startswith("the patch (changes nothing but speed):\n  --- a/t.py\n")


@pytest.mark.parametrize("lacking", [{"seconds_per_step": None}, {"ratio": None}, {"high": float("inf")}])
def test_nothing_is_said_to_be_saved_where_a_figure_is_lacking(lacking: dict[str, Any]) -> None:
    assert saving_of_patch(LADDER.with_(**lacking)) == ""


def test_bounds_that_are_not_known_are_null_in_json() -> None:
    data = to_json(report(LADDER.with_(low=0.0, high=float("inf"), screened=(0.7, 0.0, float("inf")))))["ladder"]
    assert (data["low"], data["high"], data["rungs"][0]["high"]) == (None, None, 0.92)
    assert data["screened"] == [0.7, 0.0, None]


def test_json_has_what_text_keeps_behind_verbose() -> None:
    data = to_json(CLIMB)
    assert (data["calibration"]["low"], data["calibration"]["high"]) == (0.993, 1.009)
    assert data["comparisons"][3]["basis"] == "screened" and data["comparisons"][3]["way"] == "twin"
    rung = data["ladder"]["rungs"][0]
    assert (rung["beside"], rung["quads"], rung["way"], rung["basis"]) == (
        [0.91, 0.895, 0.925],
        40,
        "setting",
        "screened",
    )
    assert (data["ladder"]["basis"], data["ladder"]["undecided"], data["ladder"]["untested"]) == (
        "measured", ["attention"], ["fusion"],
    )  # fmt: skip
    assert data["ladder"]["verified"] == "5 steps agree"


@pytest.mark.parametrize(
    ("found", "how"),
    [(SCREENED_ONLY, "and the final race did not decide"), (LADDER, "and what the patch saves was measured there")],
)
def test_what_was_raced_on_a_busy_machine_is_doubted(found: Ladder, how: str) -> None:
    said = f"The machine was busy when this began (load 8 on 2 cores), {how}: on a calm machine the patch may save less"
    assert said.lower() in " ".join(render(report(found, environment=replace(MACHINE, load=8.0))).split()).lower()
    assert "machine was busy" not in render(report(found, environment=replace(MACHINE, load=2.0)))


def test_why_a_patch_stays_of_which_no_interval_excludes_1_is_told() -> None:
    unsure = replace(GELU, ratio=None, low=0.0, high=float("inf"), quads=3, beside=(0.95, 0.88, 1.02))
    said = ladder(report(LADDER.with_(rungs=(FUSED, unsure, GONE))), plain, 400)[0].splitlines()[-1]
    assert said == (
        "No interval of fusion excludes 1. It stays because all patches together were shown to be faster, and it looked "
        "faster both alone and beside the others."
    )
    both = LADDER.with_(rungs=(replace(FUSED, high=1.01, beside=None), unsure))
    assert unsure_words(both).startswith("No interval of optimizer and fusion excludes 1. They stay because")


@pytest.mark.parametrize(
    "rungs",
    [
        (FUSED, GELU),
        (FUSED, replace(GELU, high=1.02, beside=(0.9, 0.85, 0.95))),  # shown beside the others
        (FUSED, replace(GELU, high=1.02, dropped="undecided: there was no time")),
        (replace(FUSED, high=1.02, beside=None),),  # there are no others
    ],
)
def test_nothing_is_to_be_told_of_patches_that_were_shown_to_pay(rungs: tuple[Rung, ...]) -> None:
    assert unsure_words(LADDER.with_(rungs=rungs)) == ""


def of_halves(**beside: tuple[float, float, float]) -> Ladder:
    """The ladder as it is where patches were raced with half of the others in place."""
    rungs = tuple(replace(rung, in_halves=True, beside=beside.get(rung.knob)) for rung in LADDER.rungs)
    return replace(LADDER, rungs=rungs, untested=())


def test_figures_with_half_of_the_others_in_place_are_called_what_they_are() -> None:
    text = render(report(of_halves()))
    (head,) = [line for line in text.splitlines() if "also changes" in line]
    assert "of the step, screened" in head and "alone" not in head and "beside" not in head
    assert "Screened: timed with half of the other patches in place" in " ".join(text.split())
    assert "not raced" not in text


def test_what_was_raced_beside_all_others_too_has_its_column() -> None:
    text = render(report(of_halves(optimizer=(0.91, 0.895, 0.925))))
    (head,) = [line for line in text.splitlines() if "also changes" in line]
    assert "of the step, screened" in head and "beside the others" in head
    assert "Beside the others: all patches against all but this one." in " ".join(text.split())


def test_pairs_of_blocks_are_counted_as_comparisons_too() -> None:
    raced = tuple(replace(each, in_halves=True) for each in CLIMB.comparisons)
    loader = replace(raced[0], way="loader", n=7, in_halves=False)
    control = replace(CONTROL, in_halves=True)
    text = render(CLIMB.with_(comparisons=(*raced, loader), calibration=control), verbose=True)
    assert "40 times" in text and "7 times" in text
    assert "your code (160 comparisons)" in " ".join(text.split())
    assert "single comparisons of the control scatter" in text
