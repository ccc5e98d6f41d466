"""Traces as a page for a job's summary."""

from __future__ import annotations

from trace_reports import made_report

from perfaudit.render.markdown import LIMIT, render
from perfaudit.report import Report, Skipped


def test_a_whole_report() -> None:
    page = render(made_report(1, name="mod"))
    assert page.startswith("## perfaudit trace\n\n**20 ms a step mod**\n")
    assert "- 20.0 ms → 10.0 ms a step: 0.500 times as long\n- computing: +20.0 points\n" in page
    assert "- PA902 could save at most: 20 % → no finding\n" in page
    assert (
        "| 27 % | PA901 device-waits-for-data | waits for `mod`<br>mostly under `mod`<br>`mod:3` | `perfaudit explain PA901` |\n"
        in page
    )
    assert "| rank 0 cuda:0 | 50 % | 20 % | 5 % | 10 % | 5 % | 4 % | 3 % | 3 % |\n" in page
    assert "- not read: `mod`: mod\n" in page


def test_names_are_no_markup() -> None:
    page = render(made_report())
    assert "\x1b" not in page
    assert "\x00" not in page
    rows = [line for line in page.splitlines() if line.startswith("| 27 %")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 5


def test_many_ranks() -> None:
    page = render(made_report(1024, 0, 0, "x"))
    assert "\n16 of 1,024 ranks are shown.\n" in page
    assert len(page.encode()) <= LIMIT


def test_nothing_could_be_read() -> None:
    page = render(Report("trace", skipped=(Skipped("a.json", "no trace"),)))
    assert page == "## perfaudit trace\n\n**Nothing could be read.**\n\n- not read: `a.json`: no trace\n"
