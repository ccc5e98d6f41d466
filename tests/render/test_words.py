"""Words that formats share: signs for control characters, remarks, comments that silence nothing, fixes and savings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perfaudit.findings import Expected, FilePatch, Finding, Fix, Location, Safety, Saving
from perfaudit.measurements import Calibration, Comparison, Environment, Ladder, NotApplicable, Rung, Trial, Winner
from perfaudit.render.paint import colour
from perfaudit.render.text import render
from perfaudit.render.words import (
    count,
    fix_title,
    kept_text,
    one_line,
    printable,
    remarks,
    saving_text,
    seconds,
    sentences,
    signs,
    step_time,
    unused_text,
)
from perfaudit.report import Report, Skipped, UnusedSuppression
from perfaudit.verdicts import Gate, TimeVerdict


def a_report(text: str, name: str = "") -> Report:
    """A report with this text in all that may come from the code of a user, and this one where names of files and rules are."""
    name = name or text
    place, settings = Location(name, 1, 2, 3, 4), {"mode": text, "workers": 2}
    fix = Fix(text, "safe", ("rng",), diff=text)
    rung = Rung("fusion", settings, text, (), place, text, 0.9, 0.8, 0.95, way=text, dropped=text)
    return Report(
        "tune",
        (Finding("PA001", "thing", "error", text, place, None, fix, snippet=text, note=text),),
        (Skipped(name, text),),
        target=text,
        environment=Environment(text, "3.11", "Linux", 2, 1),
        trials=(Trial("dataloader", settings, "failed", reason=text, samples=(0.1, 0.2)),),
        comparisons=(Comparison("patch", {}, {"path": text}, 0.9, 0.8, 0.95, "faster"),),
        winners=(Winner("fusion", settings, False, text, None, fix, place, text, (text,), text),),
        ladder=Ladder(
            (rung,),
            (FilePatch(name, "a", "b", text),),
            verified=text,
            trouble=text,
            undecided=(text,),
            untested=(text,),
        ),
        not_applicable=(NotApplicable("ema", text),),
        notes=(text,),
        unused_suppressions=(UnusedSuppression(name, 3, (name,), None, name, (name,)),),
    )


KEPT_RUN = ".perfaudit/runs/20261130-042427-dfc2.jsonl"
KEPT_GATES = ".perfaudit/gate.sqlite"
A_TIME = TimeVerdict("train.py", "pass", ratio=1.0, low=0.99, high=1.01, quads=8)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (Report("tune"), ""),
        (
            Report("scan", kept_in=KEPT_RUN),
            f"kept in {KEPT_RUN}: `perfaudit history 20261130-042427-dfc2` shows it again",
        ),
        (
            Report("gate", gate=Gate("main", "ref", "pass", times=(A_TIME,)), kept_in=KEPT_GATES),
            f"kept in {KEPT_GATES}: `perfaudit history --metric step_time` shows the gates in it",
        ),
        (
            Report("gate", gate=Gate("main", "ref", "pass"), kept_in=KEPT_GATES),  # no time to show
            f"kept in {KEPT_GATES}",
        ),
    ],
)
def test_where_what_was_measured_is_kept(report: Report, said: str) -> None:
    assert kept_text(report) == said
    assert said in " ".join(render(report, width=300).split())


def test_no_text_of_a_report_keeps_a_control_character() -> None:
    assert printable(a_report("a\x1b[2J\tb\r\nc\x7f\x9b")) == a_report("a␛[2J\tb\r\nc␡\ufffd", "a␛[2J\tb␊c␡\ufffd")


def test_a_finding_without_a_place_and_a_fix_stays_as_it_is() -> None:
    report = Report("scan", (Finding("PA001", "thing", "error", "slow"),))
    assert printable(report) == report


@pytest.mark.parametrize(
    ("text", "shown", "on_one_line"),
    [
        ("a\tb\nc\r\nd", "a\tb\nc\r\nd", "a\tb␊c␊d"),
        ("a\rb\r", "a␍b␍", "a␍b␍"),
        ("\x00\x08\x0b\x0c\x0e\x1f \x7e\x7f", "␀␈␋␌␎␟ ~␡", "␀␈␋␌␎␟ ~␡"),
        ("\u202ea\u2066b\u061c\u200e\u200f\u2029", "<U+202E>a<U+2066>b<U+061C><U+200E><U+200F><U+2029>", None),
        ("\u202f\u2065\u206a\u200d", "\u202f\u2065\u206a\u200d", None),
        ("\x80\x9f\xa0\ud800\udfff\ue000\ufffd\ufffe\uffff", "\ufffd\ufffd\xa0\ufffd\ufffd\ue000\ufffd\ufffd\ufffd", None),
    ],
)  # fmt: skip
def test_signs_of_control_characters(text: str, shown: str, on_one_line: str | None) -> None:
    assert signs(text) == shown
    assert one_line(text) == (on_one_line or shown)


@pytest.mark.parametrize(("number", "many", "said"), [(1, "", "1 fix"), (2, "fixes", "2 fixes"), (1, "fixes", "1 fix")])
def test_a_number_with_its_word(number: int, many: str, said: str) -> None:
    assert count(number, "fix", many) == said
    assert count(0, "file") == "0 files"


def test_what_is_said_of_a_whole_report() -> None:
    assert remarks(Report("scan", known=1, gone=2, tests_left_out=3, notes=("slow disk", "so"))) == [
        "1 finding of the baseline not shown",
        "2 findings of the baseline no longer there",
        "3 test files left out",
        "slow disk",
        "so",
    ]
    assert remarks(Report("scan")) == []


@pytest.mark.parametrize(
    ("comment", "rules", "unknown", "said"),
    [
        ("", (), (), "`perfaudit: ignore` silences nothing here"),
        ("", ("PA101", "PA102"), (), "`perfaudit: ignore[PA101, PA102]` silences nothing here"),
        ("noqa: PA101", (), (), "`noqa: PA101` silences nothing here"),
        ("noqa: all", ("PA101", "PA102"), (), "`noqa: all` silences nothing here (PA101, PA102)"),
        ("noqa: PA1", ("PA1", "PA2"), ("PA1", "PA2"), "`noqa: PA1`: no rule is called PA1 or PA2"),
    ],
)
def test_a_comment_that_silences_nothing(
    comment: str, rules: tuple[str, ...], unknown: tuple[str, ...], said: str
) -> None:
    assert unused_text(UnusedSuppression("a.py", 3, rules, comment=comment, unknown=unknown)) == said


def test_the_sentences_of_a_finding_in_their_order() -> None:
    fix, saving = Fix("mend it", "unsafe", ("rng", "order")), Saving("profiled", 0.1, 0.2)
    whole = Finding("PA001", "thing", "error", "slow", None, saving, fix, note="on every step")
    assert sentences(whole) == [
        "slow",
        "saves 10.0 to 20.0 % of the step (profiled)",
        "on every step",
        "fix (unsafe: changes rng, order): mend it",
    ]
    assert sentences(Finding("PA001", "thing", "error", "slow")) == ["slow"]


@pytest.mark.parametrize(
    ("safety", "changes", "said"),
    [
        ("manual", (), "\x1b[36madvice\x1b[0m: mend it"),
        ("safe", (), "\x1b[36mfix (safe)\x1b[0m: mend it"),
        ("unsafe", ("rng", "order"), "\x1b[36mfix (unsafe: changes rng, order)\x1b[0m: mend it"),
    ],
)
def test_the_title_of_a_fix(safety: Safety, changes: tuple[str, ...], said: str) -> None:
    assert fix_title(Fix("mend it", safety, changes), colour) == said


@pytest.mark.parametrize(
    ("saving", "said"),
    [
        (
            Saving("documented", 0, 0.5, source="a.org"),
            "\x1b[2mdocumented\x1b[0m: saves up to 50 % of a step (a.org)",
        ),
        (
            Saving("documented", 0, 0.5, source="a.org", conditions="on a GPU"),
            "\x1b[2mdocumented\x1b[0m: saves up to 50 % of a step (on a GPU; a.org)",
        ),
        (
            Saving("benchmarked", 0.3, 0.6, source="make x"),
            "\x1b[1mbenchmarked\x1b[0m: saved 30 to 60 % of a step in our own run (`make x`)",
        ),
        (
            Saving("benchmarked", -0.14, 0.02, source="make x"),
            "\x1b[1mbenchmarked\x1b[0m: no saving was shown in our own run, where the change made a step 14 % longer to "
            "2 % shorter (`make x`)",
        ),
        (
            Saving("measured", 0.001, 0.2, 0.5, clock="cpu"),
            "\x1b[1;32msaves 0.1 to 20.0 % of the step's processor time, 500.00 ms of processor time a step\x1b[0m (measured)",
        ),
        (
            Saving("measured", 0.0, 0.2, 0.5),
            "\x1b[33mno saving could be shown: the change makes the step 0.0 % longer to 20.0 % shorter\x1b[0m (measured)",
        ),
        (
            Saving("measured", -0.1, 0.0),
            "\x1b[33mno saving could be shown: the change makes the step 10.0 % longer to 0.0 % shorter\x1b[0m (measured)",
        ),
        (
            Saving("measured", -0.1, -0.001, 0.5, clock="cpu"),
            "\x1b[1;31mthe change makes the step's processor time 0.1 to 10.0 % longer\x1b[0m (measured)",
        ),
        (
            Saving("screened", 0.1, 0.2, 0.5),
            "\x1b[32msaves 10.0 to 20.0 % of the step, 500.00 ms a step\x1b[0m (screened)",
        ),
        (Saving("screened", -0.2, -0.1), "\x1b[31mthe change makes the step 10.0 to 20.0 % longer\x1b[0m (screened)"),
    ],
)
def test_a_saving_in_colour(saving: Saving, said: str) -> None:
    assert saving_text(saving, colour) == said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.9, 0.95, "; its upper end is above the 60 to 90 % that our own run saved"),  # begins where the other ends
        (0.91, 0.95, "; more than the 60 to 90 % that our own run saved"),
        (0.1, 0.6, ""),  # ends where the other begins
        (0.1, 0.59, "; less than the 60 to 90 % that our own run saved"),
        (0.7, 0.9, ""),
    ],
)
def test_a_saving_beside_what_was_known(low: float, high: float, said: str) -> None:
    measured = Saving("measured", low, high, expected=Expected("benchmarked", 0.6, 0.9))
    assert saving_text(measured) == f"saves {100 * low:.1f} to {100 * high:.1f} % of the step (measured{said})"


def test_a_saving_in_processor_time_is_not_compared_with_what_was_known() -> None:
    known: dict[str, Any] = {"expected": Expected("documented", 0.0, 0.1)}
    assert saving_text(Saving("measured", 0.5, 0.6, clock="cpu", **known)).endswith("processor time (measured)")
    own = saving_text(Saving("measured", 0.5, 0.6, clock="own", **known))
    assert " of the step (measured; waiting for cores left out" in own


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.00 s"),
        (-1.0, "-1.00 s"),
        (0.99, "990.00 ms"),
        (0.001, "1.00 ms"),
        (0.00099, "990 µs"),
        (-0.0005, "-500 µs"),
        (0.0009994995, "999 µs"),
    ],
)
def test_a_duration_has_a_unit_that_keeps_it_readable(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.5, "2.50 s"), (0.2197, "219.7 ms"), (0.01, "10.0 ms"), (0.00864, "8.64 ms"), (0.0005, "500 µs")],
)
def test_a_step_has_four_digits_at_most(value: float, text: str) -> None:
    assert step_time(value) == text


def test_a_control_that_excludes_one_is_a_remark_of_every_format() -> None:
    seen = Calibration(0.1, 1.0, 0.01, 1.05, 80, True, {}, low=1.02, high=1.08)
    (doubt,) = remarks(Report("scan", calibration=seen))
    assert doubt.startswith("this run cannot be trusted: the control, ") and "took 1.050 [1.020, 1.080] of" in doubt
    assert remarks(Report("scan", calibration=replace(seen, low=0.99))) == []
    assert remarks(Report("scan", calibration=replace(seen, low=None, high=None))) == []
