"""Tables of a tune report: what is said in one line, what wraps, and how a winner is handed over."""

from __future__ import annotations

import math

import pytest

from perfaudit.measurements import Calibration, Comparison, NotApplicable, Trial, Winner
from perfaudit.render.paint import plain
from perfaudit.render.tables import calibration, knobs, ratio_text
from perfaudit.report import Report, comparison_json


def trial(batch_size: int, reason: str = "not reached", peak: int | None = None, **more: object) -> Trial:
    settings = {"batch_size": batch_size, **more}
    return Trial("batch_size", settings, "not_measured", reason=reason, peak_memory_bytes=peak)


@pytest.mark.parametrize(
    ("trials", "text"),
    [
        ((trial(8), trial(16), trial(64)), "batch_size\n  not reached: batch_size 8, 16, 64\n"),
        (
            (trial(8, a=1), trial(16, a=2)),
            "batch_size\n  not reached: batch_size=8, a=1; batch_size=16, a=2\n",
        ),
    ],
)
def test_settings_that_were_all_not_reached_take_one_line(trials: tuple[Trial, ...], text: str) -> None:
    assert knobs(Report("tune", trials=trials), plain, 100) == [text]


@pytest.mark.parametrize(
    "trials",
    [
        (trial(8), trial(16, "interrupted")),  # two reasons
        (trial(8), trial(16, peak=3 << 20)),  # a peak that is known is shown
        (trial(8), Trial("batch_size", {"batch_size": 16}, "ok", median=0.1, low=0.1, high=0.1, n=3)),
    ],
)
def test_whatever_else_is_known_is_a_table(trials: tuple[Trial, ...]) -> None:
    (text,) = knobs(Report("tune", trials=trials), plain, 100)
    assert "quartiles" in text and text.count("not reached") == 1 + (trials[1].reason == "not reached")
    assert ("3.0 MiB" in text) == (trials[1].peak_memory_bytes is not None)


def test_knobs_that_were_not_searched_for_the_same_reason_share_a_line() -> None:
    reasons = {"cudnn": "runs on cpu", "ema": "no time was left", "transfer": "runs on cpu"}
    idle = tuple(NotApplicable(name, reason) for name, reason in reasons.items())
    assert knobs(Report("tune", not_applicable=idle), plain, 100) == [
        "not searched:\n  cudnn, transfer: runs on cpu\n  ema: no time was left\n"
    ]


def test_what_a_step_consists_of_wraps() -> None:
    parts = dict.fromkeys(("loading", "copying", "forward", "backward", "optimizer", "zero_grad"), 0.01)
    report = Report("tune", calibration=Calibration(0.06, 1.0, 0.02, 1.01, 3, True, parts))
    text = calibration(report, 60)
    assert max(map(len, text.splitlines())) <= 60
    assert " ".join(text.split()).startswith("a step takes 60.00 ms: zero grad 17 %, optimizer 17 %")
    assert len(calibration(report, 200).splitlines()) == 2


def test_a_ratio_without_an_interval() -> None:
    compared = Comparison("cudnn", {}, {}, 0.9, 0.0, math.inf, "undecided", n=8)
    assert ratio_text(compared, plain) == "0.900 [no interval yet] undecided (8 rounds)"
    assert comparison_json(compared)["ratio"] == 0.9


@pytest.mark.parametrize(
    ("given_up", "said"),
    [
        (False, "no ratio yet: undecided (0 comparisons, screened)"),
        (True, "stopped early (0 comparisons: it looked no faster)"),
    ],
)
def test_what_was_screened_too_briefly_has_no_ratio(given_up: bool, said: str) -> None:
    compared = Comparison(
        "cudnn", {}, {}, 1.0, 0.0, math.inf, "undecided", given_up=given_up, basis="screened", in_halves=True
    )
    assert ratio_text(compared, plain) == said
    assert comparison_json(compared)["ratio"] is None


@pytest.mark.parametrize(
    ("handed_over", "said"),
    [
        ("", "no line of your project builds this in a way that can be patched: change it by hand as said above"),
        ("`perfaudit scan a.py --fix` writes it", "`perfaudit scan a.py --fix` writes it"),
    ],
)
def test_how_a_winner_without_a_patch_is_handed_over(handed_over: str, said: str) -> None:
    measured = Trial("zero_grad", {"set_to_none": True}, "ok", median=0.1, low=0.1, high=0.1, n=3)
    winner = Winner("zero_grad", {"set_to_none": True}, False, "drop gradients", handed_over=handed_over)
    parts = knobs(Report("tune", trials=(measured,), winners=(winner,)), plain, 120)
    assert parts[1] == f"→ drop gradients\n  {said}\n"
