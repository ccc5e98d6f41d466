"""A climb as it is printed: whole texts, for what a reader sees at a glance."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from perfaudit.findings import FilePatch, Location
from perfaudit.measurements import NO_TIME, Ladder, NotApplicable, Rung
from perfaudit.render.ladder import heading, ladder, saved
from perfaudit.render.paint import colour, plain
from perfaudit.report import Report, to_json

FUSED = Rung(
    "optimizer", {"update": "fused"}, "build AdamW with fused=True", ("rounding", "order"), Location("t.py", 9, 5, 9, 30), "",
    0.9, 0.88, 0.92, seconds_per_step=0.09, peak_memory_bytes=3 << 20, from_start=0.9, from_low=0.88, from_high=0.92,
)  # fmt: skip
GELU = Rung(
    "fusion", {"pointwise": "library"}, "use F.gelu (t.py:4)", (), Location("t.py", 4, 1, 4, 9), "",
    0.8, 0.75, 0.85, seconds_per_step=0.072, peak_memory_bytes=2 << 20, from_start=0.72, from_low=0.67, from_high=0.77,
)  # fmt: skip
GONE = Rung(
    "cudnn", {}, "search algorithms", (), Location("t.py", 1, 1, 1, 2), "", 0.95, 0.9, 0.99, dropped="as fast without"
)
LADDER = Ladder(
    (FUSED, GELU, GONE),
    (FilePatch("t.py", "0" * 64, "1" * 64, "--- a/t.py\n+++ b/t.py\n@@ -1,2 +1,2 @@\n-a = 0\n+a = 1\n\n"),),
    ("rounding", "order"), 0.7, 0.65, 0.75, "wall", 12, "5 steps agree", 0.1, 0.07, 4 << 20, 2 << 20,
    (
        NotApplicable("batch_size", "it changes algorithm"), NotApplicable("compile", NO_TIME),
        NotApplicable("ema", "it changes algorithm"),
    ),
    untested=("optimizer", "fusion"),
)  # fmt: skip


def report(found: Ladder, **more: Any) -> Report:
    return Report("tune", ladder=found, **more)


WHOLE = """\
LADDER: 100.00 ms → 70.00 ms a step, 1.43 times as fast


 rung                                    ms/step           of your step    memory      also changes
 ──────────────────────────────────────────────────────────────────────────────────────────────────
 your code                                100.00                      1   4.0 MiB
 1  build AdamW with fused=True            90.00   0.900 [0.880, 0.920]   3.0 MiB   rounding, order
 (t.py:9)
 2  use F.gelu (t.py:4)                    72.00   0.720 [0.670, 0.770]   2.0 MiB           nothing
 -  search algorithms (t.py:1)                                taken out
 all of it, raced against your code        70.00   0.700 [0.650, 0.750]   2.0 MiB   rounding, order

each rung was raced against the source below it; ratios to your step are the products of these
races; the last line is a race of its own, 12 rounds of the whole patch against your code; it saves
30.00 s [25.00 s, 35.00 s] in a thousand steps

not raced without: optimizer, fusion, because a later patch changes what it wrote, or for want of
time or memory

taken out again:
  cudnn: as fast without

not climbed:
  batch_size, ema: it changes algorithm
  compile: no time was left for it in the budget

checked: 5 steps agree
the patch of all of it (changes rounding, order):
  --- a/t.py
  +++ b/t.py
  @@ -1,2 +1,2 @@
  -a = 0
  +a = 1

"""


def test_a_ladder_with_its_patch() -> None:
    assert "\n".join(ladder(report(LADDER), plain, 100)) == WHOLE


def test_what_is_in_colour() -> None:
    text = "\n".join(ladder(report(LADDER), colour, 100))
    assert re.sub("\x1b\\[[0-9;]*m", "", text) == WHOLE
    painted = [line for line in text.splitlines() if line.startswith(("\x1b", "  \x1b"))]
    assert painted == [
        "\x1b[1mLADDER: 100.00 ms → 70.00 ms a step, 1.43 times as fast\x1b[0m",
        "\x1b[36mthe patch of all of it (changes rounding, order):\x1b[0m",
        "  \x1b[1m--- a/t.py\x1b[0m",
        "  \x1b[1m+++ b/t.py\x1b[0m",
        "  \x1b[36m@@ -1,2 +1,2 @@\x1b[0m",
        "  \x1b[31m-a = 0\x1b[0m",
        "  \x1b[32m+a = 1\x1b[0m",
    ]
    assert "\x1b[1mms/step\x1b[0m" in text


@pytest.mark.parametrize(
    ("found", "interrupted", "words"),
    [
        (Ladder(), False, "LADDER: nothing cleared the noise: your code stays as it is"),
        (Ladder(), True, "LADDER: no rung yet, and not everything was tried"),
        (Ladder(left=(NotApplicable("a", NO_TIME),)), False, "LADDER: no rung yet, and not everything was tried"),
        (Ladder((FUSED,)), False, "LADDER: rungs, each measured on the ones below; not all of it together"),
        (
            LADDER.with_(low=0.4, high=1.0),
            False,
            "LADDER: 100.00 ms → 70.00 ms a step, ratio 0.700 [0.400, 1.000], which is no proof that it is faster",
        ),
        (LADDER.with_(high=0.999), False, "LADDER: 100.00 ms → 70.00 ms a step, 1.43 times as fast"),
        (
            Ladder(left=(NotApplicable("a", "it cannot"), NotApplicable("b", NO_TIME))),
            False,
            "LADDER: no rung yet, and not everything was tried",
        ),
        (
            Ladder(left=(NotApplicable("a", "it cannot"),)),
            False,
            "LADDER: nothing cleared the noise: your code stays as it is",
        ),
    ],
)
def test_the_heading_says_no_more_than_was_shown(found: Ladder, interrupted: bool, words: str) -> None:
    assert heading(report(found, interrupted=interrupted)) == words


NO_RACE = """\
LADDER: rungs, each measured on the ones below; not all of it together


 rung                                    ms/step           of your step    memory      also changes
 ──────────────────────────────────────────────────────────────────────────────────────────────────
 your code                                                            1
 1  build AdamW with fused=True            90.00   0.900 [0.880, 0.920]   3.0 MiB   rounding, order
 (t.py:9)
 2  use F.gelu (t.py:4)                    72.00                  0.720                     nothing
 3  use F.gelu (t.py:4)                                                                     nothing

each rung was raced against the source below it; ratios to your step are the products of these races

no patch: not handed over: it died
"""


def test_a_climb_without_a_race_of_all_of_it() -> None:
    half = replace(GELU, from_high=None, peak_memory_bytes=None)
    bare = replace(GELU, from_start=None, seconds_per_step=None, peak_memory_bytes=None)
    found = Ladder((FUSED, half, bare), LADDER.files, trouble="not handed over: it died")
    assert "\n".join(ladder(report(found), plain, 100)) == NO_RACE
    assert ladder(report(Ladder()), plain, 100) == [heading(report(Ladder())) + "\n"]


def test_a_patch_that_changes_nothing_but_speed_and_was_not_checked() -> None:
    parts = ladder(report(LADDER.with_(changes=(), verified="")), plain, 100)
    assert "0.700 [0.650, 0.750]   2.0 MiB           nothing\n" in parts[1]
    assert parts[-1].startswith("the patch of all of it (changes nothing but speed):\n  --- a/t.py\n")


LAST = "; the last line is a race of its own, 12 rounds of the whole patch against your code"
ONLY = "; the last line is the race of the only rung, 12 rounds against your code"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (LADDER.with_(rungs=(FUSED,), ratio=0.9, high=1.0), ONLY),
        (LADDER.with_(rungs=(FUSED,), ratio=0.9, high=1.2), ONLY),
        (LADDER.with_(rungs=(FUSED,), ratio=0.89, high=1.2), LAST),  # it was raced again
        (LADDER.with_(ratio=0.9, high=1.2), LAST),
        (LADDER.with_(high=0.9999), LAST + "; it saves 30.00 s [10.00 ms, 35.00 s] in a thousand steps"),
    ],
)
def test_what_the_last_line_of_the_table_is(found: Ladder, said: str) -> None:
    each = "each rung was raced against the source below it; ratios to your step are the products of these races"
    assert ladder(report(found), plain, 400)[2] == f"{each}{said}\n"


def test_a_race_that_is_too_short_has_no_interval() -> None:
    short = report(LADDER.with_(low=0.0, high=float("inf")))
    said = "100.00 ms → 70.00 ms a step, ratio 0.700 [no interval yet], which is no proof that it is faster"
    assert heading(short) == f"LADDER: {said}"
    assert " 0.700 [no interval yet] " in ladder(short, plain, 100)[1]


@pytest.mark.parametrize("lacking", [{"seconds_per_step": None}, {"ratio": None}, {"high": float("inf")}])
def test_nothing_is_said_to_be_saved_where_a_figure_is_lacking(lacking: dict[str, Any]) -> None:
    assert saved(LADDER.with_(**lacking)) == ""


@pytest.mark.parametrize("lacking", ["ratio", "seconds_per_step", "patched_seconds_per_step"])
def test_the_heading_needs_all_figures(lacking: str) -> None:
    said = "LADDER: rungs, each measured on the ones below; not all of it together"
    assert heading(report(LADDER.with_(**{lacking: None}))) == said


def test_bounds_that_are_not_known_are_null_in_json() -> None:
    data = to_json(report(LADDER.with_(low=0.0, high=float("inf"))))["ladder"]
    assert (data["low"], data["high"], data["rungs"][0]["high"]) == (None, None, 0.92)
