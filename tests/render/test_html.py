"""The HTML page of a scan, and what every page shares: escaping, size, code and patches, pictures with their figures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from climbs import CONTROL
from conftest import Done
from html_pages import EVIL, Page, check_page, readable
from reports import DIFF, EMPTY, ERROR, NOTEBOOK, ODD, SMALL, WARNING
from tunes import MACHINE, TUNE

from perfaudit.cli.code_around import code_around
from perfaudit.findings import Finding, Fix, Location, Saving
from perfaudit.render.html import render
from perfaudit.render.html.charts import IntervalRow, axis_over, intervals, ticks_between
from perfaudit.render.html.code import Excerpt, around, excerpt_table, is_copyable, patch
from perfaudit.render.html.curves import Curves, Line, Point, curves
from perfaudit.render.html.page import LIMIT
from perfaudit.report import Report, Skipped, to_json
from perfaudit.static.document import Document

Run = Callable[..., Done]
Project = Callable[..., Path]


def evil_finding(number: int = 0) -> Finding:
    """Hostile text wherever a finding has text."""
    fix = Fix(EVIL, "unsafe", (EVIL,), diff=f"--- a/{EVIL}\n+++ b/x\n@@ -1 +1 @@\n-{EVIL}\n+x{EVIL}\n")
    saving = Saving("measured", 0.1, 0.2, source=EVIL, conditions=EVIL)
    return Finding(
        "PA101", EVIL, "error", EVIL, Location(EVIL, 1 + number, 1, 1, 2), saving, fix, "1", snippet=EVIL, note=EVIL
    )


HOSTILE = Report("scan", (evil_finding(), evil_finding(1)), (Skipped(EVIL, EVIL),), 2, target=EVIL, notes=(EVIL,))


@pytest.mark.parametrize(
    "report", [EMPTY, SMALL, ODD, NOTEBOOK, HOSTILE], ids=["empty", "small", "odd", "notebook", "hostile"]
)
def test_a_page_is_by_itself_and_holds_its_report(report: Report) -> None:
    page = check_page(render(report))
    assert json.loads(page.texts["script"][0]) == json.loads(json.dumps(to_json(report)))


def test_nothing_of_a_report_is_markup() -> None:
    code = {Location(EVIL, 1, 1, 1, 2): Excerpt((EVIL,), 1, (1, 1))}
    plain = replace(evil_finding(), fix=None)
    text = render(HOSTILE.with_(findings=(plain, *HOSTILE.findings)), code)
    check_page(text)
    assert "<img" not in text
    assert "alert(1)</script>" not in text


def test_the_result_comes_first() -> None:
    said = readable(render(SMALL)).splitlines()
    assert said[:2] == ["perfaudit scan", "3 findings in 1 file, 1 not audited: 1 error, 1 warning, 1 info"]
    order = [
        said.index(heading) for heading in ("What it may save", "By rule", "Findings", "What was not read", "Notes")
    ]
    assert order == sorted(order)
    assert {"b.py", ": binary", "stopped at the budget"} <= set(said)


def test_a_basis_has_a_picture_of_its_own() -> None:
    said = readable(render(SMALL))
    measured, documented = said.index("Measured on your training: "), said.index("Documented by others ")
    assert measured < said.index("10.0 to 20.0 %") < documented < said.index("up to 50 %")


def test_a_patch_has_both_sides_beside_each_other() -> None:
    table = str(patch(DIFF, "a.py")).partition("<tbody>")[2].partition("</tbody>")[0]
    assert [readable(f"<main>{row}</main>").split("\n") for row in table.split("</tr>")[:-1]] == [
        ["1", "import torch", "1", "import torch"],
        ["2", "slow(", "True", ")", "2", "slow(", "False", ")"],
        ["3", "end = 1", "3", "end = 1"],
    ]
    assert "<del><code>slow(<mark>True</mark>)</code></del>" in table


@pytest.mark.parametrize(
    ("diff", "rows"),
    [
        ("@@ -1,2 +1 @@\n-a\n-b\n+c\n", ["1 a 1 c", "2 b"]),
        ("@@ -0,0 +1,2 @@\n+--- x\n+y\n", ["1 --- x", "2 y"]),
        ("@@ -3 +3 @@\n-a\n\\ No newline at end of file\n+a()\n@@ -9 +9 @@\n b\n", ["3 a 3 a ()", "…", "9 b 9 b"]),
        ("@@ -1 +1 @@\n--- a/x\n+++ b/x\n--- a/n.ipynb\n+++ b/n.ipynb\n@@ -5 +5 @@\n-x\n+y\n",
         ["1 -- a/ x 1 ++ b/ x", "…", "5 x 5 y"]),
        ("no diff at all\n", []),
    ],
)  # fmt: skip
def test_lines_of_a_diff(diff: str, rows: list[str]) -> None:
    table = str(patch(diff, "a.py")).partition("<tbody>")[2].partition("</tbody>")[0]
    found = [" ".join(readable(f"<main>{row}</main>").split("\n")) for row in table.split("</tr>")[:-1]]
    assert [row.replace(" ", "") for row in found] == [row.replace(" ", "") for row in rows]


@pytest.mark.parametrize(
    ("diff", "may"),
    [(DIFF, True), ("", False), (DIFF.replace("\n", "\r\n"), False), (DIFF + " \x1b[2J\n", False), (" \ufeffx\n", False),
     ("   ::add-mask::x\n", False), ("+größe\n", True)],
)  # fmt: skip
def test_only_what_a_browser_hands_over_to_the_byte_is_copied(diff: str, may: bool) -> None:
    assert is_copyable(diff) == may
    assert ('data-copy="the patch"' in patch(diff or DIFF, "a.py", diff)) == may


def test_a_patch_that_is_cut_is_not_copied() -> None:
    assert "data-copy" not in patch(DIFF + " x\n" * 5000, "a.py", DIFF + " x\n" * 5000)
    assert "Cut here" in patch(DIFF + " x\n" * 5000, "a.py", DIFF + " x\n" * 5000)


def test_a_patch_in_another_encoding_is_not_copied() -> None:
    fix = Fix("x", "safe", diff=DIFF.replace("end", "größe"), encoding="latin-1")
    assert 'data-copy="the patch"' not in render(SMALL.with_(findings=(replace(ERROR, fix=fix),)))
    assert 'data-copy="the patch"' in render(
        SMALL.with_(findings=(replace(ERROR, fix=replace(fix, encoding="utf-8")),))
    )


def test_code_around_a_place() -> None:
    lines = [f"line {number}" for number in range(1, 41)]
    assert around(lines, 2, 2) == Excerpt(tuple(lines[:5]), 1, (2, 2))
    assert around(lines, 39, 40) == Excerpt(tuple(lines[35:]), 36, (39, 40))
    assert around(lines, 5, 40).here == (5, 16)
    table = excerpt_table(around(lines, 2, 2, margin=1), "a.py")
    assert table.count("<tr") == 3
    assert '<tr class="here"><th scope="row">2</th><td><code>line 2</code></td></tr>' in table


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb\nc\n\n  f(a | b)\n", False), ("a\nb\nc\n  f(a | b)\n", True), ("a\nf(a | b)\n", False), (None, False)],
)
def test_code_is_shown_only_where_it_is_the_finding_s(text: str | None, shown: bool) -> None:
    finding = replace(WARNING, snippet="f(a | b)")
    read = lambda path: None if text is None else Document(text, text)  # noqa: E731  # a row's text
    assert bool(code_around(Report("scan", (finding,)), read)) == shown


def test_a_page_of_many_findings_has_its_size() -> None:
    many = tuple(
        replace(ERROR, location=Location("a.py", n, 1, n, 2), fix=Fix("x", "safe", diff=DIFF * 30)) for n in range(3000)
    )
    text = render(SMALL.with_(findings=many))
    assert len(text.encode()) <= LIMIT
    page = Page(text)
    assert "more are not shown" in text
    left = json.loads(page.texts["script"][0])["left_out"]
    assert left == ["patches of findings", "findings after the first 500"]
    assert "Left out for its size: patches of findings, findings after the first 500" in text


@pytest.mark.parametrize(
    ("points", "dated"),
    [(3, [0, 1, 2]), (4, [0, 3]), (5, [0, 2, 4]), (8, [0, 7]), (31, [0, 15, 30]), (60, [0, 29, 59])],
)
def test_dates_below_a_curve_do_not_touch_each_other(points: int, dated: list[int]) -> None:
    names = [f"2026-11-{day:02}" for day in range(points)]
    line = Line("gates", tuple(Point(place, 1.0, kind="plain") for place in range(points)), 0)
    drawn = curves(Curves(names, [line], axis_over([1.0, 2.0], str), "a label"), "a caption")
    assert re.findall(r">(2026-11-\d+)</text>", str(drawn)) == [names[place] for place in dated]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)), (0.93, 1.08, (0.95, 1.0, 1.05)), (-3.0, 44.0, (0.0, 10.0, 20.0, 30.0, 40.0)),
     (0.0, 1e-6, (0.0, 2e-07, 4e-07, 6e-07, 8e-07, 1e-06))],
)  # fmt: skip
def test_ticks_are_round(low: float, high: float, ticks: tuple[float, ...]) -> None:
    assert ticks_between(low, high) == pytest.approx(ticks)


def test_an_interval_is_drawn_where_its_figures_are() -> None:
    axis = axis_over([0.0, 2.0], lambda value: f"{value:.1f}", margin=0.0)
    drawn = intervals([IntervalRow("x", "1.0 [0.5, 1.5]", "faster", 1.0, 0.5, 1.5)], axis, "Ratios", base=1.0)
    assert '<line x1="25%" x2="75%" y1="50%" y2="50%" class="whisker faster"/>' in drawn
    assert '<svg x="50%" y="50%" class="at">' in drawn
    assert '<line x1="50%" x2="50%" y1="0%" y2="100%" class="base"/>' in drawn
    outside = intervals([IntervalRow("x", "9", "slower", 9.0)], axis, "Ratios")
    assert '<svg x="100%" y="50%" class="at"><path d="M-10 -5L-1 0L-10 5Z" class="sign slower"/></svg>' in outside
    assert axis_over([], str).has(0.0)


LOOP = """
import torch

optimizer = torch.optim.AdamW(model.parameters())


def train(model, loader):
    for x in loader:
        optimizer.zero_grad(set_to_none=True)
        model(x).sum().backward()
        optimizer.step()
        torch.cuda.empty_cache()
"""


def test_the_command_line(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": LOOP, "b.py": "import torch\ntorch.autograd.set_detect_anomaly(True)\n"})
    done = perfaudit("scan", ".", "--html", "a.html")
    assert done.code == 1
    assert done.out == perfaudit("scan", ".").out
    page = (folder / "a.html").read_bytes().decode()
    assert page == perfaudit("scan", ".", "--format", "html").out
    check_page(page)
    assert "set_detect_anomaly(<mark>False</mark>)" in page
    line = '<tr class="here"><th scope="row">11</th><td><code>        torch.cuda.empty_cache()</code></td></tr>'
    assert line in page  # it has no patch, so its code is shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--html", "x.html", "-o", "x.html"], "x.html: named by --output and by --html"),
     (["--html", "a.py"], "would replace source code"),
     (["--html", "x.html", "--diff"], "--html writes a report as a page, and --diff makes none")],
)  # fmt: skip
def test_a_page_needs_a_file_of_its_own(project: Project, perfaudit: Run, arguments: list[str], message: str) -> None:
    project(**{"a.py": "import torch\n"})
    done = perfaudit("scan", "a.py", *arguments)
    assert (done.code, message in done.err) == (2, True)


def test_a_measured_scan_says_on_what_it_was_measured_and_what_was_raced() -> None:
    raced = tuple(c for c in TUNE.comparisons if c.knob == "patch")
    doubted = replace(CONTROL, ratio=1.1, low=1.05, high=1.15)
    shown = SMALL.with_(environment=replace(MACHINE, load=9.0), calibration=doubted, comparisons=raced, target="t.py")
    text = render(shown)
    check_page(text)
    said = readable(text).splitlines()
    assert said[2].startswith(
        "This run cannot be trusted: the control, identical code put in place as a patch is, took 1.100"
    )
    assert "The machine was busy (load 9.0 on 2 cores): intervals are wider for it" in said
    assert "0.900 [0.850, 0.950] faster (9 rounds, measured)" in said
    assert sum("cannot be trusted" in line for line in said) == 1
    assert '<h3 class="group">Measured: these pay here, by the lower bound of what they save</h3>' in text
