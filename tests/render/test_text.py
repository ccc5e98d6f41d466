"""The report as a person reads it, whole."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from reports import SMALL

from perfaudit.findings import Basis, Edit, Expected, Finding, Fix, Location, Saving, Severity, Span
from perfaudit.measurements import Comparison, NotApplicable
from perfaudit.render.paint import colour, wrap
from perfaudit.render.text import render
from perfaudit.render.words import saving_text, seconds
from perfaudit.report import Report, Skipped, UnusedSuppression

DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n import torch\n-slow(True)\n+slow(False)\n"
FINDING = Finding(
    "PA000",
    "slow-thing",
    "error",
    "`slow(True)` makes the host wait for the device on every step, and it does so twice",
    Location("pkg/a.py", 2, 1, 2, 11),
    Saving("documented", 0.0, 0.5, source="a paper about slow things and how fast they could be"),
    Fix("switch it off", "safe", diff=DIFF),
    snippet="slow(True)  # a comment that is longer than sixty characters is not wrapped",
    places=(Location("pkg/a.py", 2, 1, 2, 11), Location("pkg/a.py", 9, 1, 9, 11)),
    note="not measured: no knob settles it",
)


def finding(severity: Severity = "warning", fix: Fix | None = None, saving: Saving | None = None) -> Finding:
    return Finding("PA001", "thing", severity, "slow", Location("b.py", 1, 1, 1, 2), saving, fix)


def test_a_finding() -> None:
    assert render(Report("scan", (FINDING,), files=1), width=60) == (
        "  1  pkg/a.py:2:1  PA000 slow-thing\n"
        "     │ slow(True)  # a comment that is longer than sixty characters is not wrapped\n"
        "     `slow(True)` makes the host wait for the device on\n"
        "     every step, and it does so twice\n"
        "     lines 2, 9\n"
        "     documented: saves up to 50 % of a step (a paper about\n"
        "     slow things and how fast they could be)\n"
        "     not measured: no knob settles it\n"
        "     fix (safe): switch it off\n"
        "       --- a/a.py\n"
        "       +++ b/a.py\n"
        "       @@ -1,2 +1,2 @@\n"
        "        import torch\n"
        "       -slow(True)\n"
        "       +slow(False)\n"
        "\n"
        "1 finding in 1 file: 1 error\n"
        "`--fix` applies 1 safe fix\n"
        "`perfaudit explain PA000` says why the first one costs time\n"
    )


IDLE = (UnusedSuppression("b.py", 3, ("PA101",)), UnusedSuppression("b.py", 4, (), 2))
SAFE, UNSAFE, ADVICE = Fix("a", "safe"), Fix("b", "unsafe", ("rng",)), Fix("c", "manual")


@pytest.mark.parametrize(
    ("fixes", "sentence"),
    [
        ([SAFE], "`--fix` applies 1 safe fix"),
        ([SAFE, SAFE], "`--fix` applies 2 safe fixes"),
        ([UNSAFE], "`--fix --unsafe-fixes` applies 1 fix that changes results too"),
        ([UNSAFE, UNSAFE], "`--fix --unsafe-fixes` applies 2 fixes that change results too"),
        ([SAFE, UNSAFE], "`--fix` applies 1 safe fix, `--fix --unsafe-fixes` 1 more that changes results too"),
        ([SAFE, ADVICE, None], "`--fix` applies 1 safe fix, 2 to change by hand"),
        ([ADVICE], "1 to change by hand"),
    ],
)
def test_what_next(fixes: list[Fix | None], sentence: str) -> None:
    text = render(Report("scan", tuple(finding(fix=fix) for fix in fixes), files=1))
    assert text.splitlines()[-2:] == [sentence, "`perfaudit explain PA001` says why the first one costs time"]


@pytest.mark.parametrize(
    ("severities", "files", "skipped", "line"),
    [
        (["error"], 1, 0, "1 finding in 1 file: 1 error"),
        (["error", "error", "info", "info"], 3, 0, "4 findings in 3 files: 2 errors, 2 info"),
        (["warning", "info"], 1, 2, "2 findings in 1 file, 2 not audited: 1 warning, 1 info"),
        ([], 1, 0, "nothing found in 1 file"),
        ([], 2, 1, "nothing found in 2 files, 1 not audited"),
    ],
)
def test_counts(severities: list[Severity], files: int, skipped: int, line: str) -> None:
    left_out = tuple(Skipped(f"{n}.py", "binary") for n in range(skipped))
    text = render(Report("scan", tuple(finding(s) for s in severities), left_out, files))
    assert line in text.splitlines()


def test_what_was_left_out() -> None:
    report = Report(
        "scan", (), (Skipped("a.py", "binary"), Skipped("b.py", "empty")), 1, notes=("the machine was busy",)
    )
    assert render(report) == (
        "a.py: not audited: binary\n"
        "b.py: not audited: empty\n"
        "\n"
        "note: the machine was busy\n"
        "\n"
        "nothing found in 1 file, 2 not audited\n"
        "nothing is known of what was not audited; the lines above say why\n"
    )


def test_groups_have_headings_once_something_was_measured() -> None:
    measured, shown = Saving("measured", 0.1, 0.2, 0.004), Saving("measured", -0.1, 0.1)
    text = render(Report("scan", (finding(saving=measured), finding(), finding(saving=shown)), files=1))
    headings = [
        line for line in text.splitlines() if line.isupper() or line[:8] in ("MEASURED", "NOT MEAS", "TIMED: n")
    ]
    assert headings == [
        "MEASURED: these pay here, by the lower bound of what they save",
        "NOT MEASURED: nothing was shown of these here",
        "TIMED: no saving shown here",
    ]
    assert "MEASURED" not in render(Report("scan", (finding(),), files=1))


def test_what_was_screened_has_a_heading_of_its_own_and_its_patch_is_offered() -> None:
    fix = Fix("do less", "safe", edits=(Edit(Span(0, 1), ""),))
    seen = finding(saving=Saving("screened", 0.1, 0.2, 0.004), fix=fix)
    idle = finding(saving=Saving("screened", -0.1, 0.2, 0.004))
    text = render(Report("scan", (seen, finding(), idle), files=1))
    headings = [line for line in text.splitlines() if line.startswith(("MEASURED", "SCREENED", "NOT MEAS", "TIMED"))]
    assert headings == [
        "SCREENED: these pay in a training that runs, by the lower bound of what they save",
        "NOT MEASURED: nothing was shown of these here",
        "TIMED: no saving shown here",
    ]
    assert "saves 10.0 to 20.0 % of the step, 4.00 ms a step (screened)\n" in text
    assert "--select PA001 --fix` writes the patches that pay here" in " ".join(text.split())


def test_patches_that_were_screened_have_a_table_of_their_own() -> None:
    def compared(rule: str, basis: Basis, **more: Any) -> Comparison:
        return Comparison("patch", {"patch": "none"}, {"patch": rule}, 0.8, 0.7, 0.9, "faster", 8, basis=basis, **more)

    left = compared("PA002", "screened", way="twin", given_up=True)
    setting = Comparison(
        "dataloader", {"num_workers": 0}, {"num_workers": 2}, 0.9, 0.8, 0.95, "faster", 16, basis="screened", way="twin"
    )
    seen = (compared("PA001", "screened", way="code"), left, compared("PA001 + PA003", "measured"), setting)
    assert render(Report("scan", comparisons=seen, files=1)).startswith(
        "dataloader\n\n"
        "against num_workers=0, in one running training, time per step:\n"
        "  num_workers=2: 0.900 [0.800, 0.950] faster (16 comparisons, screened)\n\n"
        "patches in one running training, each in turn with your code, time per step\n"
        "  PA001: 0.800 [0.700, 0.900] faster (8 comparisons, screened)\n"
        "  PA002: stopped early (8 comparisons: it looked no faster)\n\n"
        "patched source against the source as it is, time per step\n"
        "  PA001 + PA003: 0.800 [0.700, 0.900] faster (8 rounds)\n"
    )


@pytest.mark.parametrize(
    ("saving", "text"),
    [
        (Saving("documented", 0.0, 0.6, source="a guide"), "documented: saves up to 60 % of a step (a guide)"),
        (
            Saving("documented", 0.0, 0.6, source="https://a.org", conditions="2 times as fast"),
            "documented: saves up to 60 % of a step (2 times as fast; https://a.org)",
        ),
        (
            Saving("benchmarked", 0.3, 0.6, source="make bench", conditions="2-core CPU, torch 2.13.0"),
            "benchmarked: saved 30 to 60 % of a step in our own run (2-core CPU, torch 2.13.0; `make bench`)",
        ),
        (Saving("measured", 0.1, 0.2, 0.004), "saves 10.0 to 20.0 % of the step, 4.00 ms a step (measured)"),
        (Saving("profiled", 0.1, 0.2), "saves 10.0 to 20.0 % of the step (profiled)"),
        (Saving("measured", -0.2, -0.1), "the change makes the step 10.0 to 20.0 % longer (measured)"),
        (
            Saving("measured", -0.1, 0.1),
            "no saving could be shown: the change makes the step 10.0 % longer to 10.0 % shorter (measured)",
        ),
    ],
)
def test_saving(saving: Saving, text: str) -> None:
    assert saving_text(saving) == text


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.35, 0.47, "more than the 5 to 30 % that others document"),
        (0.25, 0.47, "its upper end is above the 5 to 30 % that others document"),
        (0.05, 0.30, ""),
        (0.01, 0.06, ""),  # it may be as much as documented
        (0.01, 0.04, "less than the 5 to 30 % that others document"),
        (-0.2, -0.1, "less than the 5 to 30 % that others document"),
    ],
)
def test_a_measured_saving_outside_of_what_was_known(low: float, high: float, said: str) -> None:
    measured = Saving("measured", low, high, expected=Expected("documented", 0.05, 0.3))
    assert saving_text(measured).endswith(f"(measured; {said})" if said else "(measured)")
    in_cpu_time = replace(measured, clock="cpu")  # a share of something else
    assert saving_text(in_cpu_time).endswith("(measured)")


def test_no_two_bases_share_a_colour() -> None:
    bases: tuple[Basis, ...] = ("measured", "benchmarked", "documented")
    styles = {basis: re.findall("\x1b\\[[^m]*m", saving_text(Saving(basis, 0.1, 0.2), colour))[0] for basis in bases}
    assert len(set(styles.values())) == len(bases)


@pytest.mark.parametrize(
    ("value", "text"), [(2.0, "2.00 s"), (0.5, "500.00 ms"), (-0.001, "-1.00 ms"), (2e-5, "20 µs"), (0.0, "0 µs")]
)
def test_seconds(value: float, text: str) -> None:
    assert seconds(value) == text


def test_colour_changes_nothing_but_colour() -> None:
    report = Report("scan", (FINDING, finding("info", UNSAFE), finding(fix=ADVICE)), (Skipped("c.py", "binary"),), 3)
    plain = render(report, in_colour=False, width=60)
    painted = render(report, in_colour=True, width=60)
    assert "\x1b" not in plain
    assert "\x1b[32m+slow(False)\x1b[0m" in painted
    assert re.sub("\x1b\\[[0-9;]*m", "", painted) == plain


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two", ["one two"]),
        ("one two three", ["one two", "three"]),
        ("a `b c d e f g` h", ["a", "`b c d e f g`", "h"]),  # code stays whole
        ("(`a b`, c) d", ["(`a b`,", "c) d"]),
        ("12345678901234 1", ["12345678901234", "1"]),
        ("\x1b[1mone\x1b[0m two three", ["\x1b[1mone\x1b[0m two", "three"]),
        ("an odd ` sign", ["an odd `", "sign"]),
        ("is for 12 % of 3", ["is for", "12 % of", "3"]),  # a number keeps its sign
    ],
)
def test_wrapped(text: str, lines: list[str]) -> None:
    assert wrap(text, 10, "  ") == "\n".join("  " + line for line in lines)


WHOLE = """\
NOT MEASURED: nothing was shown of these here

  1  pkg/a.py:2:1  PA000 slow-thing
     `slow(True)` waits for the device: 100 % of the time
     lines 2, 9
     documented: saves up to 50 % of a step (a paper)
     fix (safe): switch it off
       --- a/pkg/a.py
       +++ b/pkg/a.py
       @@ -1,3 +1,3 @@
        import torch
       -slow(True)
       +slow(False)
        end = 1

MEASURED: these pay here, by the lower bound of what they save

  2  pkg/a.py:4:3  PA001 other-thing
     `f(a | b)` is slow, too
     saves 10.0 to 20.0 % of the step, 4.00 ms a step (measured)
     advice: do less

NOT MEASURED: nothing was shown of these here

  3  (no source line)  PA002 no-place
     the whole program is slow

b.py: not audited: binary

pkg/a.py:7:1: `perfaudit: ignore[PA101]` silences nothing here

note: stopped at the budget

3 findings in 1 file, 1 not audited: 1 error, 1 warning, 1 info
nothing is known of what was not audited; the line above says why
2 findings of the baseline not shown; 1 finding of the baseline no longer there; 3 test files left
out (--tests reads them)
no patch of what pays is handed over, so there is nothing to apply
"""


def test_a_whole_report() -> None:
    assert render(SMALL.with_(gone=1, tests_left_out=3)) == WHOLE


def test_what_is_bold_in_it() -> None:
    painted = render(SMALL, in_colour=True)
    assert re.findall("\x1b\\[1m(.*?)\x1b", painted) == [
        "NOT MEASURED: nothing was shown of these here",
        "pkg/a.py:2:1",
        "--- a/pkg/a.py",
        "+++ b/pkg/a.py",
        "MEASURED: these pay here, by the lower bound of what they save",
        "pkg/a.py:4:3",
        "NOT MEASURED: nothing was shown of these here",
        "(no source line)",
        "3 findings",
    ]
    assert re.findall("\x1b\\[(3[0-9])m(PA.*?)\x1b", painted) == [("31", "PA000"), ("33", "PA001"), ("36", "PA002")]
    assert "b.py: \x1b[33mnot audited\x1b[0m: binary\n" in painted


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (Report("scan", files=1, known=2), "nothing new in 1 file\n2 findings of the baseline not shown\n"),
        (
            Report("scan", files=2, tests_left_out=1),
            "nothing found in 2 files\n1 test file left out (--tests reads them)\n",
        ),
        (
            Report("scan", files=2, known=1, gone=1, notes=("slow disk",)),
            "note: slow disk\n\nnothing new in 2 files\n"
            "1 finding of the baseline not shown; 1 finding of the baseline no longer there\n",
        ),
        (
            Report("scan", (), (Skipped("a.py", "binary"),), unused_suppressions=IDLE),
            "a.py: not audited: binary\n\n"
            "b.py:3:1: `perfaudit: ignore[PA101]` silences nothing here\n"
            "b.py:cell 2:4:1: `perfaudit: ignore` silences nothing here\n\n"
            "nothing found in 0 files, 1 not audited\n"
            "nothing is known of what was not audited; the line above says why\n",
        ),
    ],
)
def test_nothing_was_found(report: Report, said: str) -> None:
    assert render(report) == said
    assert re.findall("\x1b\\[1m(.*?)\x1b", render(report, in_colour=True)) == [
        "nothing new" if report.known else "nothing found"
    ]


def test_a_saving_of_a_rule_is_said_once_and_a_measured_one_each_time() -> None:
    known, ours = Saving("documented", 0, 0.5, source="a paper"), Saving("benchmarked", 0.1, 0.2, source="make x")
    measured = Saving("profiled", 0.1, 0.2)
    found = [finding(saving=s) for s in (measured, known, measured, known, None)]
    found += [replace(finding(saving=s), rule="PA002") for s in (ours, ours, known)]
    text = render(Report("scan", tuple(found), files=1))
    assert [line.strip() for line in text.splitlines() if "saves" in line or "run (" in line or "PA00" in line][
        :-1
    ] == [
        "1  b.py:1:1  PA001 thing",
        "saves 10.0 to 20.0 % of the step (profiled)",
        "2  b.py:1:1  PA001 thing",
        "documented: saves up to 50 % of a step (a paper)",
        "3  b.py:1:1  PA001 thing",
        "saves 10.0 to 20.0 % of the step (profiled)",
        "4  b.py:1:1  PA001 thing",
        "5  b.py:1:1  PA001 thing",
        "6  b.py:1:1  PA002 thing",
        "benchmarked: saved 10 to 20 % of a step in our own run (`make x`)",
        "7  b.py:1:1  PA002 thing",
        "8  b.py:1:1  PA002 thing",
    ]


EDITED = Fix("b", "unsafe", edits=(Edit(Span(0, 1), "x"),))
PAYS = Saving("measured", 0.1, 0.2)


def paying(rule: str, path: str = "b.py", fix: Fix | None = EDITED, saving: Saving = PAYS) -> Finding:
    return Finding(rule, "thing", "info", "slow", Location(path, 1, 1, 1, 2), saving, fix)


SCAN = "`perfaudit scan {} --select {} --fix --unsafe-fixes` writes the patches that pay here"
SEARCH = "`perfaudit tune train.py --dataloader --apply` searches and writes the loader's"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([paying("PA2")], SCAN.format("b.py", "PA2")),
        (
            [paying("PA3"), paying("PA2", "a.py"), paying("PA2"), replace(paying("PA4"), location=None)],
            SCAN.format("b.py a.py", "PA3,PA2,PA4"),
        ),
        ([paying("PA101")], SEARCH),
        ([paying("PA101"), paying("PA2")], f"{SCAN.format('b.py', 'PA2')}; {SEARCH}"),
        (
            [
                paying("PA2"),
                paying("PA3", "c.py", fix=None),  # nothing to write
                paying("PA4", "c.py", fix=ADVICE),
                paying("PA5", "c.py", saving=Saving("measured", 0.0, 0.2)),  # not shown to pay
                paying("PA6", "c.py", saving=Saving("benchmarked", 0.1, 0.2)),  # not measured here
            ],
            SCAN.format("b.py", "PA2"),
        ),
        (
            # It was interrupted before its losses were compared.
            [paying("PA1", fix=None, saving=Saving("screened", 0.1, 0.2))],
            "no patch of what pays is handed over, so there is nothing to apply",
        ),
        (
            [paying("PA5", saving=Saving("measured", 0.0, 0.2))],
            "nothing was shown to pay here, so there is nothing to apply",
        ),
    ],
)
def test_what_to_type_to_take_what_pays(found: list[Finding], said: str) -> None:
    text = render(Report("scan", tuple(found), files=1, target="train.py"), width=400)
    assert text.splitlines()[-1] == said


def test_a_line_of_a_patch_that_is_empty_stays_empty() -> None:
    text = render(Report("scan", (finding(fix=Fix("a", "safe", diff="@@ -1 +1 @@\n-x\n\n+y\n")),), files=1))
    assert "       -x\n\n       +y\n" in text


def test_a_search_that_found_no_knob_says_so() -> None:
    idle = Report("tune", not_applicable=(NotApplicable("ema", "no time"),))
    assert render(idle) == "not searched:\n  ema: no time\n"


def test_nothing_follows_the_tables_of_tune() -> None:
    assert render(Report("tune", notes=("a",))) == "note: a\n"


def test_control_characters_do_not_reach_the_terminal() -> None:
    evil = "\x1b[2Jx\x07\x9b\x7f\ty\rz"
    fix = Fix(evil, "safe", diff=f"--- a/a.py\n+++ b/a.py\n-{evil}\r\n+y\r\n")
    found = Finding("PA001", "thing", "info", evil, Location(evil, 1, 1, 1, 2), None, fix, snippet=evil, note=evil)
    text = render(Report("scan", (found,), (Skipped(evil, evil),), 1))
    assert not set(text) & set("\x1b\x07\x9b\x7f")
    assert "       -␛[2Jx␇\ufffd␡\ty␍z\r\n" in text
    assert "\x1b[2J" not in render(Report("scan", (found,), files=1), in_colour=True)
