"""A climb, for the tests that compare its whole text: two patches that stayed, one that did not, two that were raced only."""

from __future__ import annotations

from typing import Any

from tunes import MACHINE, PHASES

from perfaudit.findings import FilePatch, Location, Saving
from perfaudit.measurements import NO_TIME, Calibration, Comparison, Ladder, NotApplicable, Rung, Winner
from perfaudit.report import Report

FUSED = Rung(
    "optimizer", {"update": "fused"}, "build AdamW with fused=True", ("rounding", "order"), Location("t.py", 9, 5, 9, 30),
    "", 0.9, 0.88, 0.92, 40, "setting", (0.91, 0.895, 0.925),
)  # fmt: skip
GELU = Rung(
    "fusion", {"pointwise": "library"}, "use F.gelu (t.py:4)", (), Location("t.py", 4, 1, 4, 9), "",
    0.8, 0.75, 0.85, 32, "code",
)  # fmt: skip
GONE = Rung(
    "cudnn", {"benchmark": True}, "search algorithms", (), Location("t.py", 1, 1, 1, 2), "", 0.95, 0.9, 0.99, 32, "setting",
    (1.002, 0.991, 1.013), dropped="the others are as fast without it",
)  # fmt: skip
LADDER = Ladder(
    (FUSED, GELU, GONE),
    (FilePatch("t.py", "0" * 64, "1" * 64, "--- a/t.py\n+++ b/t.py\n@@ -1,2 +1,2 @@\n-a = 0\n+a = 1\n\n"),),
    ("rounding", "order"), 0.7, 0.65, 0.75, "measured", "wall", 12, (0.71, 0.69, 0.73), "5 steps agree", 0.1, 0.07,
    4 << 20, 2 << 20,
    (
        NotApplicable("batch_size", "it changes algorithm"), NotApplicable("compile", NO_TIME, late=True),
        NotApplicable("ema", "it changes algorithm"),
    ),
    ("attention",), untested=("fusion",),
)  # fmt: skip


def screened(rung: Rung) -> Comparison:
    """The comparison that a rung comes from."""
    return Comparison(
        rung.knob,
        {},
        rung.settings,
        rung.ratio,
        rung.low,
        rung.high,
        "faster",
        rung.quads,
        basis="screened",
        way=rung.way,
    )


RACED = (
    screened(FUSED), screened(GELU), screened(GONE),
    Comparison(
        "attention", {}, {"attention": "library"}, 0.98, 0.95, 1.01, "undecided", 48, smallest=0.031, basis="screened",
        way="twin",
    ),
    Comparison("compile", {}, {"mode": "default"}, 1.2, 0.0, float("inf"), "undecided", 1),
)  # fmt: skip
CONTROL = Calibration(
    0.1, 1.0, 0.02, 1.001, 160, True, {name: 2.5 * each for name, each in PHASES.items()}, low=0.993, high=1.009
)


def report(found: Ladder = LADDER, **more: Any) -> Report:
    """A report with nothing but a ladder, and what is named."""
    return Report("tune", target="t.py", ladder=found, **more)


CLIMB = report(
    environment=MACHINE,
    calibration=CONTROL,
    comparisons=RACED,
    winners=tuple(
        Winner(r.knob, r.settings, False, r.words, Saving("screened", 1 - r.high, 1 - r.low)) for r in (FUSED, GELU)
    ),
    not_applicable=(NotApplicable("threads", "the step runs on the device"),),
    notes=("a note",),
)
