"""`perfaudit tune`: what its exit code says, and what `--verbose` adds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfaudit.cli.output import emit
from perfaudit.cli.tune import _code, changes_allowed
from perfaudit.errors import FOUND, NOTHING_MEASURED, OK
from perfaudit.findings import FilePatch
from perfaudit.measurements import Comparison, Ladder, NotApplicable, Trial, Winner
from perfaudit.report import Report

SCREENED = Comparison("fusion", {}, {"a": 1}, 0.9, 0.8, 0.95, "faster", 40, basis="screened", way="code")
PATCHED = Ladder(files=(FilePatch("t.py", "0" * 64, "1" * 64, ""),))
TRIAL = Trial("threads", {"threads": 2}, "ok", median=0.1, low=0.1, high=0.1, n=5)
WINNER = Winner("threads", {"threads": 2}, False, "two threads")


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ({}, NOTHING_MEASURED),
        ({"ladder": Ladder()}, NOTHING_MEASURED),
        ({"ladder": Ladder(), "comparisons": (replace(SCREENED, high=float("inf")),)}, NOTHING_MEASURED),
        ({"ladder": Ladder(), "comparisons": (SCREENED,)}, OK),  # a climb has no trials
        ({"ladder": Ladder(), "comparisons": (replace(SCREENED, high=float("inf"), given_up=True),)}, OK),
        ({"ladder": PATCHED, "comparisons": (SCREENED,)}, FOUND),
        ({"ladder": PATCHED, "comparisons": (replace(SCREENED, high=float("inf")),)}, FOUND),  # raced together only
        ({"ladder": Ladder(screened=(0.98, 0.9, 1.1))}, OK),
        ({"trials": (replace(TRIAL, status="failed"),), "winners": (WINNER,)}, NOTHING_MEASURED),
        ({"trials": (TRIAL,), "winners": (replace(WINNER, keeps_current=True),)}, OK),
        ({"trials": (TRIAL,), "winners": (WINNER,)}, FOUND),
    ],
)
def test_exit_codes(found: dict[str, Any], code: int) -> None:
    assert _code(Report("tune", **found), exit_zero=False) == code
    assert _code(Report("tune", **found), exit_zero=True) == (OK if code == FOUND else code)


@pytest.mark.parametrize(
    ("allow", "changes"),
    [
        (None, {"rounding"}),
        ([""], {"rounding"}),
        (["rng"], {"rng"}),
        (["rng,precision"], {"rng", "precision"}),
        (["rng", "precision"], {"rng", "precision"}),
        (["rng", " order, rounding", "rng"], {"rng", "order", "rounding"}),
        (["safe"], set()),
        (["safe", "safe"], set()),
    ],
)
def test_what_patches_may_change_is_what_all_the_options_name(allow: list[str] | None, changes: set[str]) -> None:
    assert changes_allowed(allow) == changes


def test_what_is_behind_verbose_is_named_without_it(tmp_path: Path) -> None:
    report = Report("tune", ladder=Ladder(), not_applicable=(NotApplicable("threads", "the step runs on the device"),))
    said = {}
    for verbose in (False, True):
        emit(report, "text", tmp_path / "report.txt", verbose)
        said[verbose] = (tmp_path / "report.txt").read_text(encoding="utf-8")
    assert said[False] == "no patch was raced\n\n--verbose adds: 1 knob that cannot matter here\n"
    assert said[True] == "no patch was raced\n\nnot searched:\n  threads: the step runs on the device\n"
