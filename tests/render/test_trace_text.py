"""Traces as text: bars with their shares, in a list for one device and in columns for several, on lines that a terminal has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trace_reports import made_report

from perfaudit.render.html import render as render_html
from perfaudit.render.paint import plain
from perfaudit.render.trace import trace_page
from perfaudit.report import Report, Skipped

LINES_OF_ONE = """\
  rank 0 cuda:0  ███████████████▓▓▓▓▓▓▒▒dddsal·

  █   50 %  computing
  ▓   20 %  communicating, not computing
  ▒    5 %  copying, nothing else
  d   10 %  idle: waiting for data
  s    5 %  idle: the host waited for the device
  a    4 %  idle: memory allocation
  l    3 %  idle: launching
  ·    3 %  idle: other
"""
LINES_OF_TWO = """\
                                  % of the time   █   ▓   ▒   d   s   a   l   ·
  rank 0 cuda:0  ███████████████▓▓▓▓▓▓▒▒dddsal·  50  20   5  10   5   4   3   3
  rank 1 cuda:0  ███████████████▓▓▓▓▓▓▒▒dddsal·  50  20   5  10   5   4   3   3

  █ computing  ▓ communicating, not computing  ▒ copying, nothing else
  d idle: waiting for data  s idle: the host waited for the device
  a idle: memory allocation  l idle: launching  · idle: other
"""


@pytest.mark.parametrize(("ranks", "lines"), [(1, LINES_OF_ONE), (2, LINES_OF_TWO)])
def test_bars_have_their_shares(ranks: int, lines: str) -> None:
    page = trace_page(made_report(ranks, name="mod"), plain, 79)
    assert lines in page


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    report = made_report(12, name="mod")
    assert report.traces is not None
    traces = replace(report.traces, verdict="a long verdict " * 20)
    page = trace_page(report.with_(traces=traces, notes=("a long note " * 20,)), plain, width, verbose=True)
    assert max(map(len, page.splitlines())) <= width
    nothing = trace_page(Report("trace", skipped=(Skipped("a.json", "no trace " * 30),)), plain, width)
    assert max(map(len, nothing.splitlines())) <= width


def test_a_straggler_is_told_once() -> None:
    report = made_report(2, name="mod")
    line = "rank 1 comes last to 3 of 9 collectives"
    assert line in trace_page(report, plain, 80)
    (finding,) = report.findings
    assert line not in trace_page(report.with_(findings=(replace(finding, rule="PA904"),)), plain, 80)


def test_a_note_says_of_which_ranks_it_is() -> None:
    report = made_report(3, name="mod")
    assert report.traces is not None
    first, *others = report.traces.ranks
    traces = replace(
        report.traces, ranks=(replace(first, notes=("no-steps",)), *(replace(one, notes=()) for one in others))
    )
    assert "note (rank 0 cuda:0): No steps are marked" in trace_page(report.with_(traces=traces), plain, 80)
    assert "<li>rank 0 cuda:0: No steps are marked" in render_html(report.with_(traces=traces))
    assert "note: Python stacks were recorded" in trace_page(report, plain, 80)  # of all
    assert "<li>Python stacks were recorded" in render_html(report)
