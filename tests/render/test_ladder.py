"""A climb as it is printed: whole texts, for what a reader sees at a glance."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.findings import FilePatch, Location
from perfaudit.measurements import NO_TIME, Ladder, NotApplicable, Rung
from perfaudit.render.ladder import heading, ladder
from perfaudit.render.paint import plain
from perfaudit.report import Report, to_json

FUSED = Rung(
    "optimizer", {"update": "fused"}, "build AdamW with fused=True", ("rounding",), Location("t.py", 9, 5, 9, 30), "",
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
    (FilePatch("t.py", "0" * 64, "1" * 64, "--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-a = 0\n+a = 1\n"),),
    ("rounding",), 0.7, 0.65, 0.75, "wall", 12, "5 steps agree", 0.1, 0.07, 4 << 20, 2 << 20,
    (NotApplicable("batch_size", "it changes algorithm"), NotApplicable("compile", NO_TIME)),
)  # fmt: skip


def report(found: Ladder, **more: Any) -> Report:
    return Report("tune", ladder=found, **more)


def test_a_ladder_with_its_patch() -> None:
    text = "\n".join(ladder(report(LADDER), plain, 100))
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip() and "─" not in line]
    assert lines == [
        "LADDER: 100.00 ms → 70.00 ms a step, 1.43 times as fast",
        "rung ms/step of your step memory also changes",
        "your code 100.00 1 4.0 MiB",
        "1 build AdamW with fused=True (t.py:9) 90.00 0.900 [0.880, 0.920] 3.0 MiB rounding",
        "2 use F.gelu (t.py:4) 72.00 0.720 [0.670, 0.770] 2.0 MiB nothing",
        "- search algorithms (t.py:1) taken out",
        "all of it, raced against your code 70.00 0.700 [0.650, 0.750] 2.0 MiB rounding",
        "each rung was raced against the source below it; ratios to your step are the products of these",
        "races; the last line is a race of its own, 12 rounds of the whole patch against your code; it saves",
        "30.00 s [25.00 s, 35.00 s] in a thousand steps",
        "taken out again:",
        "cudnn: as fast without",
        "not climbed:",
        "batch_size: it changes algorithm",
        "compile: no time was left for it in the budget",
        "checked: 5 steps agree",
        "the patch of all of it (changes rounding):",
        "--- a/t.py",
        "+++ b/t.py",
        "@@ -1 +1 @@",
        "-a = 0",
        "+a = 1",
    ]


@pytest.mark.parametrize(
    ("found", "interrupted", "words"),
    [
        (Ladder(), False, "LADDER: nothing cleared the noise: your code stays as it is"),
        (Ladder(), True, "LADDER: no rung yet, and not everything was tried"),
        (Ladder(left=(NotApplicable("a", NO_TIME),)), False, "LADDER: no rung yet, and not everything was tried"),
        (Ladder((FUSED,)), False, "LADDER: rungs, each measured on the ones below; not all of it together"),
        (
            LADDER.with_(low=0.4, high=1.2),
            False,
            "LADDER: 100.00 ms → 70.00 ms a step, ratio 0.700 [0.400, 1.200], which is no proof that it is faster",
        ),
    ],
)
def test_the_heading_says_no_more_than_was_shown(found: Ladder, interrupted: bool, words: str) -> None:
    assert heading(report(found, interrupted=interrupted)) == words


def test_no_patch_is_printed_where_none_is_handed_over() -> None:
    text = "\n".join(ladder(report(LADDER.with_(files=(), trouble="not handed over: it died")), plain, 100))
    assert "no patch: not handed over: it died" in text
    assert "+a = 1" not in text


def test_the_race_of_a_single_rung_is_not_told_as_another_one() -> None:
    alone = LADDER.with_(rungs=(FUSED,), ratio=0.9, low=0.88, high=0.92)
    text = " ".join("\n".join(ladder(report(alone), plain, 100)).split())
    assert "the last line is the race of the only rung, 12 rounds against your code" in text
    assert "race of its own" not in text


def test_bounds_that_are_not_known_are_null_in_json() -> None:
    data = to_json(report(LADDER.with_(low=0.0, high=float("inf"))))["ladder"]
    assert (data["low"], data["high"], data["rungs"][0]["high"]) == (None, None, 0.92)
