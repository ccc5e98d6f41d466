"""A report as a notebook shows it: small, without style or script, everything escaped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from climbs import CLIMB
from gates import GATES, TIME
from html_pages import ELEMENTS, EVIL, Page, readable
from reports import EMPTY, ERROR, NOTEBOOK, ODD, SMALL
from test_html_run import REPORT as RUN
from trace_reports import made_report
from tunes import TUNE

from perfaudit.machine_facts import MachineFact
from perfaudit.report import Report

DOCTOR = Report(
    "doctor", machine=(MachineFact("memory", "/dev/shm", 64 << 20, "bytes", "warning", f"mount it {EVIL}"),)
)
SHOWN = [EMPTY, SMALL, ODD, NOTEBOOK, CLIMB, TUNE, RUN, DOCTOR, made_report(), *GATES.values()]


@pytest.mark.parametrize("report", SHOWN, ids=[f"{n}-{report.command}" for n, report in enumerate(SHOWN)])
def test_it_is_small_and_holds_nothing_that_runs(report: Report) -> None:
    text = report._repr_html_()
    page = Page(text)
    assert {tag for tag, _ in page.elements} <= (ELEMENTS | {"b"}) - {"script", "style", "link", "meta", "a"}
    assert not any(name.startswith("on") or name == "src" for _, attributes in page.elements for name in attributes)
    assert len(text) < 20_000


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (EMPTY, "Nothing was found in 2 files"),
        (SMALL, "3 findings in 1 file, 1 not audited: 1 error, 1 warning, 1 info"),
        (
            CLIMB,
            "100.0 ms → 70.0 ms a step (1.43 x), 2 patches, verified; 1 undecided, 1 not reached",
        ),
        (TUNE, "4 settings pay here, each measured by itself against your code"),
        (TIME, "Regressed against origin/main (1f2e3d4c5b6a): train.py is 8.1 % slower"),
        (DOCTOR, "1 thing here slows a training or spoils a measurement."),
    ],
)
def test_the_verdict_comes_first(report: Report, said: str) -> None:
    assert readable(f"<main>{report._repr_html_()}</main>").splitlines()[:2] == [
        f"perfaudit {report.command}",
        f": {said}",
    ]


def test_a_bar_is_as_long_as_its_share() -> None:
    widths = [one["width"] for one in Page(RUN._repr_html_()).of("rect")]
    assert widths == ["30", "60", "30"]


def test_many_findings_are_counted() -> None:
    text = SMALL.with_(findings=(replace(ERROR, message=EVIL),) * 25)._repr_html_()
    assert "15 more findings in <code>report.findings</code>" in text
    assert "<img" not in text
